"""The decisions of late, by what they rest on: pods of one template are decided on once.

That is how pods come: by the hundred from one Deployment, Job or Task. A decision rests on the
likeness of a pod, on its plan, on two facts about its namespace (whether it is the cluster's own,
whether it fixes the SELinux level), on the helper's image, and on the cluster's nodes,
RuntimeClasses and release. It is made from the likeness, not from the pod, so that it cannot rest
on more; and its self-check holds for every pod that is alike, for what they differ in is no part of
a patch.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from webhook.core.admission.cache_key import likeness
from webhook.core.admission.decision import Decision
from webhook.core.cluster.view import ClusterView, Namespace
from webhook.core.constants import SYSTEM_NAMESPACES
from webhook.core.patch.verify import Proofs
from webhook.core.pod import Pod
from webhook.core.policy.plan import Plan

MOST_BYTES = 2 * 1024 * 1024
"""Of likenesses and answers, 4 KB for a Tekton TaskRun; with all else it is three times as much."""
_OUTCOME = 100
"""Bytes of a reason that no answer tells."""
_LONGEST = 32 * 1024
"""Of one: a tenant's odd pod must not push out those of others."""

_encode = msgspec.json.Encoder().encode


class Memory:
    """What was decided since the cluster changed. For use on one thread."""

    def __init__(self, proofs: Proofs | None = None) -> None:
        """`proofs` are the shapes of patches that are known to do what they should."""
        self.proofs = Proofs() if proofs is None else proofs
        self._ground: tuple[object, ...] = ()
        self._decisions: dict[bytes, Decision] = {}
        self._bytes = 0

    def settle(
        self,
        pod: Pod,
        plan: Plan,
        namespace: Namespace,
        view: ClusterView,
        linger_image: str | None,
        decide: Callable[[Pod], Decision],
    ) -> Decision:
        """The decision on a pod, made by `decide` where none is known. The pod is used up.

        Of its annotations only podsettle's own are looked at: the caller knows that there is room
        for more. Raises what `decide` raises.
        """
        ground = (view.nodes, view.runtime_classes, view.server_version, linger_image)
        if ground != self._ground:
            self._forget()
        # Also where it is equal: what is the very same is not compared node by node again.
        self._ground = ground
        alike = likeness(pod, wraps_containers=plan.wraps_containers)
        place = namespace.fixed_selinux_level, namespace.name.startswith(SYSTEM_NAMESPACES)
        key = _encode((plan.number, place, alike))
        decision = self._decisions.get(key)
        if decision is None:
            decision = decide(alike)
            # What lacks an image is better the next time.
            if not decision.missing_images:
                self._keep(key, decision)
        return decision

    def _keep(self, key: bytes, decision: Decision) -> None:
        size = len(key) + len(decision.response_json) + _OUTCOME * len(decision.outcomes)
        if size > _LONGEST:
            return
        if self._bytes + size > MOST_BYTES:
            # Who makes up pods to fill memory gets no further.
            self._forget()
        self._decisions[key] = decision
        self._bytes += size

    def _forget(self) -> None:
        self._decisions = {}
        self._bytes = 0
