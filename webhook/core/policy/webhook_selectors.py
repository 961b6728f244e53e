"""Which pods policies select by label, in as few pairs of selectors as say it exactly.

A webhook has one `namespaceSelector` and one `objectSelector`, and neither has an "or". So each
distinct pair of a policy's `namespaceSelector` and `podSelector` needs a webhook of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from webhook.core.constants import GROUP, LABEL_NAMESPACE_NAME
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.selectors import LabelSelector

CLUSTER_WEBHOOK = f"cluster.{GROUP}"
"""The first webhook for namespaces that policies select; the names of further ones end in it."""

MAX_WEBHOOKS = 20
"""The API server matches every new pod against each of them, and calls for a pod that several match
until one has settled it."""
MAX_SELECTOR_BYTES = 256 * 1024
"""Of all selectors together. etcd takes 1.5 MiB for an object; beyond it nothing could be written
to the configuration, a renewed CA included."""

_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_MAX_PREFIX_CHARACTERS = 253


class LabelRequirement(NamedTuple):
    """A requirement on labels, in a form that is the same for all that mean the same."""

    key: str
    operator: str
    values: tuple[str, ...]


class SelectorPair(NamedTuple):
    """A pair of selectors: the requirements on a namespace's labels and on a pod's."""

    namespaces: frozenset[LabelRequirement]
    pods: frozenset[LabelRequirement]
    named_namespaces: frozenset[str]
    """The namespaces that the selector spells out by their names."""

    def includes(self, other: SelectorPair) -> bool:
        """Whether each pod that `other` selects is selected, shown by having no further demand."""
        return (
            self.namespaces <= other.namespaces
            and self.pods <= other.pods
            # A protected namespace is covered only by a selector that names it.
            and self.named_namespaces >= other.named_namespaces
        )

    @property
    def size_bytes(self) -> int:
        """How long its keys and values are together."""
        requirements = (*self.namespaces, *self.pods)
        return sum(len(each.key) + sum(map(len, each.values)) for each in requirements)


class WebhookSelectors(NamedTuple):
    """What webhooks are to be asked about because of policies that select namespaces."""

    by_webhook: Mapping[str, SelectorPair]
    """By the webhook's name. Empty where no policy selects namespaces."""
    merged_because: str = ""
    """Why one webhook serves all policies together; empty where each pair has its own."""


def is_cluster_webhook(webhook: str) -> bool:
    """Whether a webhook of this name is one that podsettle adds to the configuration."""
    return webhook == CLUSTER_WEBHOOK or webhook.endswith(f".{CLUSTER_WEBHOOK}")


def webhook_selectors(policies: Iterable[SettlePolicy]) -> WebhookSelectors:
    """The webhooks for policies, which have different names.

    A webhook is named after the first policy, by name, whose pair it is; the first of all has
    no such prefix. So the names depend on the policies alone, and not on what is registered.
    """
    found: dict[SelectorPair, str] = {}
    for policy in sorted(policies, key=lambda each: each.metadata.name):
        selector = policy.spec.namespace_selector
        if selector is not None:
            named_namespaces = selector.names(LABEL_NAMESPACE_NAME)
            pods = frozenset(_requirements(policy.spec.pod_selector))
            pair = SelectorPair(frozenset(_requirements(selector)), pods, named_namespaces)
            found.setdefault(pair, policy.metadata.name)
    kept: list[SelectorPair] = []
    # Each is included by none that comes later. At most MAX_WEBHOOKS comparisons each.
    for pair in sorted(found, key=lambda each: len(each.namespaces) + len(each.pods)):
        if not any(other.includes(pair) for other in kept):
            kept.append(pair)
        if len(kept) > MAX_WEBHOOKS:
            what = "pairs of namespaceSelector and podSelector"
            return _merge_into_one(found, f"the policies have more than {MAX_WEBHOOKS} {what}")
    if sum(each.size_bytes for each in kept) > MAX_SELECTOR_BYTES:
        return _merge_into_one(found, f"the policies' selectors exceed {MAX_SELECTOR_BYTES} bytes")
    kept.sort(key=found.__getitem__)
    names = (
        f"{found[each]}.{CLUSTER_WEBHOOK}" if n else CLUSTER_WEBHOOK for n, each in enumerate(kept)
    )
    return WebhookSelectors(dict(zip(names, kept, strict=True)))


def _merge_into_one(pairs: Iterable[SelectorPair], reason: str) -> WebhookSelectors:
    """One webhook for all: it requires what each of them requires."""
    namespaces, pods, named_namespaces = zip(*pairs, strict=True)
    both = SelectorPair(
        frozenset.intersection(*namespaces),
        frozenset.intersection(*pods),
        frozenset().union(*named_namespaces),
    )
    if both.size_bytes > MAX_SELECTOR_BYTES:
        both = both._replace(namespaces=frozenset(), pods=frozenset())
    return WebhookSelectors({CLUSTER_WEBHOOK: both}, reason)


def _requirements(selector: LabelSelector) -> Iterator[LabelRequirement]:
    for key, value in selector.match_labels.items():
        if _is_label_key(key):
            yield LabelRequirement(key, "In", (value,))
    for requirement in selector.match_expressions:
        if _is_label_key(requirement.key):
            values = tuple(sorted(set(requirement.values)))
            yield LabelRequirement(requirement.key, requirement.operator, values)


def _is_label_key(key: str) -> bool:
    """Whether the API server takes it as the key of a label.

    A policy's schema admits a few that it does not take, such as `a..b/c`. It would refuse the
    whole configuration for one; without the requirement the webhook is asked about more.
    """
    prefix, slash, _name = key.rpartition("/")
    return not slash or (
        len(prefix) <= _MAX_PREFIX_CHARACTERS and _PREFIX.fullmatch(prefix) is not None
    )
