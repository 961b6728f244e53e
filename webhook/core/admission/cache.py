"""A cache of decisions, because most pods of a cluster are copies of a few templates.

A Deployment, Job or Task creates hundreds of pods from one template. The key is the encoded
DecisionInput with the number of the plan. The cache decides on the values that it has encoded, so a
decision cannot depend on anything outside its key. The cache is cleared when the facts about the
cluster change.

When the cache is full, it evicts the decision that was used least recently. Tenants choose their
pods, so each namespace has a share: while a namespace occupies more, its own decisions are evicted
first. So the pods of one namespace cannot evict the decisions about the pods of all others.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from webhook.core.admission.apply_plan import apply_plan
from webhook.core.admission.rendered_decision import RenderedDecision, render
from webhook.core.cluster.view import ClusterFacts
from webhook.core.decision_input import DecisionInput
from webhook.core.policy.plan import Plan

MAX_CACHE_BYTES = 2 * 1024 * 1024
"""The maximum size of all entries. A Tekton TaskRun takes 6 KB. The process needs up to twice as
much, because the sizes of Python objects are estimated."""
_NAMESPACE_SHARE = 1 / 8
"""The share of the cache that the decisions of one namespace may occupy when the cache is full."""
_MAX_ENTRY_BYTES = 32 * 1024
"""The maximum size of one entry. Larger decisions are not cached, because one unusual
pod of a tenant must not evict the decisions for other tenants."""
_ENTRY_OVERHEAD_BYTES = 1_000
"""The estimated size of the Python objects of an entry without outcomes. A tenant can cause
thousands of entries whose keys and answers take a tenth of this."""
_OUTCOME_BYTES = 100
"""The estimated size of one outcome. It is counted apart, because the answer may omit it."""

# Only JSON has the same bytes for equal inputs alone: an undecoded field is one JSON value, and
# JSON shows where it ends.
_encode = msgspec.json.Encoder().encode


class _NamespaceEntries:
    """The cached decisions that the pods of one namespace have caused."""

    __slots__ = ("keys", "name", "size_bytes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.keys: OrderedDict[bytes, None] = OrderedDict()
        """The keys of the decisions. The first one was used least recently."""
        self.size_bytes = 0


class _Entry(msgspec.Struct, frozen=True):
    rendered: RenderedDecision
    size_bytes: int
    owner: _NamespaceEntries
    """The namespace whose pod was the first with this decision."""


class DecisionCache:
    """A cache of the decisions since the last change of the cluster. It is not thread-safe."""

    def __init__(self, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._max_namespace_bytes = max_bytes * _NAMESPACE_SHARE
        self._cluster: ClusterFacts | None = None
        self._clear()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        """The size of all entries."""
        return self._bytes

    def get_or_decide(
        self, namespace: str, decision_input: DecisionInput, plan: Plan, cluster: ClusterFacts
    ) -> RenderedDecision:
        """Return the cached decision on an input, or make it. Raises every error of `apply_plan`.

        `namespace` is the name of the pod's namespace. The decision does not depend on it.
        """
        if cluster != self._cluster:
            self._clear()
        # Equal facts replace the stored ones too. Python compares identical objects at once, so the
        # next comparison need not compare all nodes.
        self._cluster = cluster
        key = _encode((plan.number, decision_input))
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
            entry.owner.keys.move_to_end(key)
            return entry.rendered
        rendered = render(*apply_plan(decision_input, plan, cluster))
        # A decision with missing images is not cached, because a better one follows.
        if not rendered.decision.missing_images:
            self._put(namespace, key, rendered)
        return rendered

    def _put(self, namespace: str, key: bytes, rendered: RenderedDecision) -> None:
        decision = rendered.decision
        size = _ENTRY_OVERHEAD_BYTES + len(key)
        size += len(rendered.patch) + len(rendered.texts.texts_json)
        size += _OUTCOME_BYTES * len(decision.outcomes)
        size += sum(map(len, decision.annotations.values()))
        if size > min(_MAX_ENTRY_BYTES, self._max_bytes):
            return
        while self._bytes + size > self._max_bytes:
            self._evict(namespace)
        owner = self._namespaces.get(namespace)
        if owner is None:
            owner = self._namespaces[namespace] = _NamespaceEntries(namespace)
        self._entries[key] = _Entry(rendered, size, owner)
        owner.keys[key] = None
        self._bytes += size
        owner.size_bytes += size
        if owner.size_bytes > self._max_namespace_bytes:
            self._over_share[owner.name] = owner

    def _evict(self, namespace: str) -> None:
        """Remove one decision, for a new one of a namespace."""
        owner = self._over_share.get(namespace)
        if owner is None and self._over_share:
            owner = max(self._over_share.values(), key=_size_of)
        key = next(iter(self._entries if owner is None else owner.keys))
        entry = self._entries.pop(key)
        owner = entry.owner
        del owner.keys[key]
        self._bytes -= entry.size_bytes
        owner.size_bytes -= entry.size_bytes
        if owner.size_bytes <= self._max_namespace_bytes:
            self._over_share.pop(owner.name, None)
        if not owner.keys:
            del self._namespaces[owner.name]

    def _clear(self) -> None:
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        """The decisions by their keys. The first one was used least recently."""
        self._namespaces: dict[str, _NamespaceEntries] = {}
        self._over_share: dict[str, _NamespaceEntries] = {}
        """The namespaces that occupy more than their share, at most seven."""
        self._bytes = 0


def _size_of(entries: _NamespaceEntries) -> int:
    return entries.size_bytes
