"""The selectors of podsettle's webhooks for policies that select namespaces by label.

A webhook has one `namespaceSelector` and one `objectSelector`, and a selector has no "or". So each
distinct pair of a policy's `namespaceSelector` and `podSelector` needs a webhook of its own.
`cluster_webhooks` makes the entries of the MutatingWebhookConfiguration from these pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from webhook.core.constants import GROUP, LABEL_POLICY
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.selectors import LabelRequirement

CLUSTER_WEBHOOK = f"cluster.{GROUP}"
"""The name of the first webhook for namespaces that policies select. The names of the others end
in it."""

MAX_WEBHOOKS = 20
"""The maximum number of such webhooks. The API server matches every new pod against each of them.
If several match a pod, it calls one after the other until one has changed the pod."""
MAX_SELECTOR_BYTES = 256 * 1024
"""The maximum size of all selectors together. etcd accepts objects of up to 1.5 MiB. In a larger
configuration podsettle could not even renew its CA."""


class SelectorPair(NamedTuple):
    """The requirements on a namespace's labels and on a pod's labels. All have to hold."""

    namespaces: frozenset[LabelRequirement]
    pods: frozenset[LabelRequirement]
    named_namespaces: frozenset[str]
    """The namespaces that the namespace selector lists by name."""

    def includes(self, other: SelectorPair) -> bool:
        """Return whether this pair has no requirement that `other` lacks.

        If so, this pair selects every pod that `other` selects.
        """
        return (
            self.namespaces <= other.namespaces
            and self.pods <= other.pods
            # Only a selector that names a protected namespace covers it.
            and self.named_namespaces >= other.named_namespaces
        )

    @property
    def size_bytes(self) -> int:
        """The total length of all keys and values."""
        requirements = (*self.namespaces, *self.pods)
        return sum(len(each.key) + sum(map(len, each.values)) for each in requirements)


class WebhookSelectors(NamedTuple):
    """The selectors of each webhook for policies that select namespaces."""

    by_webhook: Mapping[str, SelectorPair]
    """The selectors by the webhook's name. Empty if no policy selects namespaces."""
    merged_because: str = ""
    """Why one webhook serves all policies together. Empty if each pair has its own webhook."""


def is_cluster_webhook(webhook: str) -> bool:
    """Return whether podsettle adds and removes the webhook with this name."""
    return webhook == CLUSTER_WEBHOOK or webhook.endswith(f".{CLUSTER_WEBHOOK}")


def webhook_selectors(policies: Iterable[SettlePolicy]) -> WebhookSelectors:
    """Return the selectors of the webhooks that these policies need.

    No two policies may have the same name. A webhook's name begins with the name of the first
    policy, by name, that has its selectors. The first webhook has no such prefix. So the names
    depend only on the policies, not on the webhooks that are registered.
    """
    names_by_pair: dict[SelectorPair, str] = {}
    for policy in sorted(policies, key=lambda each: each.metadata.name):
        if policy.spec.namespace_selector is not None:
            names_by_pair.setdefault(selector_pair(policy), policy.metadata.name)
    needed_pairs: list[SelectorPair] = []
    # Pairs with few requirements come first, because no later pair can include an earlier one.
    # Each pair takes at most MAX_WEBHOOKS comparisons.
    for pair in sorted(names_by_pair, key=lambda each: len(each.namespaces) + len(each.pods)):
        if not any(other.includes(pair) for other in needed_pairs):
            needed_pairs.append(pair)
        if len(needed_pairs) > MAX_WEBHOOKS:
            what = "pairs of namespaceSelector and podSelector"
            return _merge_into_one(
                names_by_pair, f"the policies have more than {MAX_WEBHOOKS} {what}"
            )
    if sum(each.size_bytes for each in needed_pairs) > MAX_SELECTOR_BYTES:
        return _merge_into_one(
            names_by_pair, f"the policies' selectors exceed {MAX_SELECTOR_BYTES} bytes"
        )
    needed_pairs.sort(key=names_by_pair.__getitem__)
    names = (
        f"{names_by_pair[each]}.{CLUSTER_WEBHOOK}" if n else CLUSTER_WEBHOOK
        for n, each in enumerate(needed_pairs)
    )
    return WebhookSelectors(dict(zip(names, needed_pairs, strict=True)))


def selector_pair(policy: SettlePolicy) -> SelectorPair:
    """Return the requirements of a policy on the labels of namespaces and pods.

    A policy without a namespaceSelector covers the namespaces that name it by label.
    """
    selector = policy.spec.namespace_selector
    if selector is None:
        by_label = LabelRequirement(LABEL_POLICY, "In", (policy.metadata.name,))
        namespaces = frozenset({by_label})
    else:
        namespaces = selector.webhook_requirements
    pods = policy.spec.pod_selector.webhook_requirements
    return SelectorPair(namespaces, pods, policy.spec.named_namespaces)


def _merge_into_one(pairs: Iterable[SelectorPair], reason: str) -> WebhookSelectors:
    """Return one webhook for all pairs, with the requirements that they have in common."""
    namespaces, pods, named_namespaces = zip(*pairs, strict=True)
    common = SelectorPair(
        frozenset.intersection(*namespaces),
        frozenset.intersection(*pods),
        frozenset().union(*named_namespaces),
    )
    if common.size_bytes > MAX_SELECTOR_BYTES:
        common = common._replace(namespaces=frozenset(), pods=frozenset())
    return WebhookSelectors({CLUSTER_WEBHOOK: common}, reason)
