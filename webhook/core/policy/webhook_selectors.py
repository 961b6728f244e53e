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

BY_SELECTOR = f"cluster.{GROUP}"
"""The first webhook for namespaces that policies select; the names of further ones end in it."""

MAX_WEBHOOKS = 20
"""The API server matches every new pod against each of them, and calls for a pod that several match
until one has settled it."""
MAX_SELECTOR_BYTES = 256 * 1024
"""Of all selectors together. etcd takes 1.5 MiB for an object; beyond it nothing could be written
to the configuration, a renewed CA included."""

_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_MAX_PREFIX_CHARACTERS = 253


class Demand(NamedTuple):
    """A requirement on labels, in a form that is the same for all that mean the same."""

    key: str
    operator: str
    values: tuple[str, ...]


class Selection(NamedTuple):
    """A pair of selectors: the demands on a namespace's labels and on a pod's."""

    namespaces: frozenset[Demand]
    pods: frozenset[Demand]
    named: frozenset[str]
    """The namespaces that the selector spells out by their names."""

    def includes(self, other: Selection) -> bool:
        """Whether each pod that `other` selects is selected, shown by having no further demand."""
        return (
            self.namespaces <= other.namespaces
            and self.pods <= other.pods
            # A protected namespace is covered only by a selector that names it.
            and self.named >= other.named
        )

    @property
    def bytes(self) -> int:
        """How long its keys and values are together."""
        demands = (*self.namespaces, *self.pods)
        return sum(len(each.key) + sum(map(len, each.values)) for each in demands)


class Scope(NamedTuple):
    """What webhooks are to be asked about because of policies that select namespaces."""

    webhooks: Mapping[str, Selection]
    """By the webhook's name. Empty where no policy selects namespaces."""
    too_broad: str = ""
    """Why one webhook serves all policies together; empty where each selection has its own."""


def is_by_selector(webhook: str) -> bool:
    """Whether a webhook of this name is one that podsettle adds to the configuration."""
    return webhook == BY_SELECTOR or webhook.endswith(f".{BY_SELECTOR}")


def scope_of(policies: Iterable[SettlePolicy]) -> Scope:
    """The webhooks for policies, which have different names.

    A webhook is named after the first policy, by name, whose selection it is; the first of all has
    no such prefix. So the names depend on the policies alone, and not on what is registered.
    """
    found: dict[Selection, str] = {}
    for policy in sorted(policies, key=lambda each: each.metadata.name):
        selector = policy.spec.namespace_selector
        if selector is not None:
            named = selector.names(LABEL_NAMESPACE_NAME)
            pods = frozenset(_demands(policy.spec.pod_selector))
            selection = Selection(frozenset(_demands(selector)), pods, named)
            found.setdefault(selection, policy.metadata.name)
    kept: list[Selection] = []
    # Each is included by none that comes later. At most MAX_WEBHOOKS comparisons each.
    for selection in sorted(found, key=lambda each: len(each.namespaces) + len(each.pods)):
        if not any(other.includes(selection) for other in kept):
            kept.append(selection)
        if len(kept) > MAX_WEBHOOKS:
            what = "pairs of namespaceSelector and podSelector"
            return _too_broad(found, f"the policies have more than {MAX_WEBHOOKS} {what}")
    if sum(each.bytes for each in kept) > MAX_SELECTOR_BYTES:
        return _too_broad(found, f"the policies' selectors exceed {MAX_SELECTOR_BYTES} bytes")
    kept.sort(key=found.__getitem__)
    names = (f"{found[each]}.{BY_SELECTOR}" if n else BY_SELECTOR for n, each in enumerate(kept))
    return Scope(dict(zip(names, kept, strict=True)))


def _too_broad(selections: Iterable[Selection], why: str) -> Scope:
    """One webhook for all: it demands what each of them demands."""
    namespaces, pods, named = zip(*selections, strict=True)
    both = Selection(
        frozenset.intersection(*namespaces),
        frozenset.intersection(*pods),
        frozenset().union(*named),
    )
    if both.bytes > MAX_SELECTOR_BYTES:
        both = both._replace(namespaces=frozenset(), pods=frozenset())
    return Scope({BY_SELECTOR: both}, why)


def _demands(selector: LabelSelector) -> Iterator[Demand]:
    for key, value in selector.match_labels.items():
        if _is_label_key(key):
            yield Demand(key, "In", (value,))
    for requirement in selector.match_expressions:
        if _is_label_key(requirement.key):
            values = tuple(sorted(set(requirement.values)))
            yield Demand(requirement.key, requirement.operator, values)


def _is_label_key(key: str) -> bool:
    """Whether the API server takes it as the key of a label.

    A policy's schema admits a few that it does not take, such as `a..b/c`. It would refuse the
    whole configuration for one; without the demand the webhook is asked about more.
    """
    prefix, slash, _name = key.rpartition("/")
    return not slash or (
        len(prefix) <= _MAX_PREFIX_CHARACTERS and _PREFIX.fullmatch(prefix) is not None
    )
