"""A cache of decisions, because most pods of a cluster are copies of a few templates.

A Deployment, Job or Task creates hundreds of pods from one template. A decision depends on the
fields of the pod that `cache_key` keeps, on its plan, on two facts about its namespace, on the
helper's image, and on the cluster's nodes, RuntimeClasses and version. The cache decides on the
reduced pod instead of the received one, so a decision cannot depend on a field outside the key. The
self-check of the patch holds for every pod with the same key, because a patch touches only fields
of the key.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from webhook.core.admission.cache_key import key_pod_of
from webhook.core.admission.decision import Decision
from webhook.core.cluster.view import ClusterView, Namespace
from webhook.core.constants import SYSTEM_NAMESPACE_PREFIXES
from webhook.core.patch.verify import VerifiedShapes
from webhook.core.pod import Pod
from webhook.core.policy.plan import Plan

MAX_CACHE_BYTES = 2 * 1024 * 1024
"""The maximum size of all keys and answers. A Tekton TaskRun takes 4 KB. The process needs three
times as much, because Python objects are larger than their JSON."""
_MAX_ENTRY_BYTES = 32 * 1024
"""The maximum size of one key and its answer. Larger decisions are not cached, because one unusual
pod of a tenant must not evict the decisions for other tenants."""
_OUTCOME_BYTES = 100
"""The estimated size of one outcome. It is counted apart, because the answer may omit it."""

_encode = msgspec.json.Encoder().encode


class DecisionCache:
    """A cache of the decisions since the last change of the cluster. It is not thread-safe."""

    def __init__(
        self, verified_shapes: VerifiedShapes | None = None, max_bytes: int = MAX_CACHE_BYTES
    ) -> None:
        """Create an empty cache. `verified_shapes` can be shared with another cache."""
        self._max_bytes = max_bytes
        self.verified_shapes = VerifiedShapes() if verified_shapes is None else verified_shapes
        self._generation: tuple[object, ...] = ()
        self._decisions: dict[bytes, Decision] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._decisions)

    @property
    def size_bytes(self) -> int:
        """The size of all keys and answers."""
        return self._bytes

    def get_or_decide(
        self,
        pod: Pod,
        plan: Plan,
        namespace: Namespace,
        view: ClusterView,
        linger_image: str | None,
        decide: Callable[[Pod], Decision],
    ) -> Decision:
        """Return the cached decision on a pod, or the one that `decide` makes.

        **Mutates `pod`.** The key omits foreign annotations. So the caller must know that the pod's
        annotations leave enough space for those of podsettle. Raises every error of `decide`.
        """
        generation = (view.nodes, view.runtime_classes, view.server_version, linger_image)
        if generation != self._generation:
            self._clear()
        # An equal generation replaces the stored one too. Python compares identical objects at
        # once, so the next comparison need not compare all nodes.
        self._generation = generation
        key_pod = key_pod_of(pod, wraps_containers=plan.wraps_containers)
        namespace_facts = (
            namespace.fixed_selinux_level,
            namespace.name.startswith(SYSTEM_NAMESPACE_PREFIXES),
        )
        key = _encode((plan.number, namespace_facts, key_pod))
        decision = self._decisions.get(key)
        if decision is None:
            decision = decide(key_pod)
            # A decision with missing images is not cached, because a better one follows.
            if not decision.missing_images:
                self._put(key, decision)
        return decision

    def _put(self, key: bytes, decision: Decision) -> None:
        size = len(key) + len(decision.response_json) + _OUTCOME_BYTES * len(decision.outcomes)
        if size > _MAX_ENTRY_BYTES:
            return
        if self._bytes + size > self._max_bytes:
            # Clear everything when full, so generated pods cannot exhaust memory.
            self._clear()
        self._decisions[key] = decision
        self._bytes += size

    def _clear(self) -> None:
        self._decisions = {}
        self._bytes = 0
