"""seLinuxChangePolicy: keep the pod's volumes out of Kubernetes 1.37's SELinuxMount.

From 1.37 on the kubelet mounts volumes with the pod's SELinux label if their CSI driver supports
it, instead of relabelling each file (KEP-1710). Pods with different labels, such as privileged
pods, can then no longer share such a volume on one node: the second pod stays in
ContainerCreating. `Recursive` opts a pod out. It can be set before the upgrade.

The remedy has no setting `when`, because all releases from Kubernetes 1.37 on need it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from webhook.core.cel import all_of, quote
from webhook.core.cluster.view import ClusterView
from webhook.core.decision_input import PodFacts
from webhook.core.defects.versions import SELINUX_CHANGE_POLICY_ON_BY_DEFAULT
from webhook.core.patch.builder import PodPatch
from webhook.core.reasons import Outcome, Reason
from webhook.core.remedies.base import Context, Remedy
from webhook.core.remedies.native import Native, NativeRemedy, NotNativeError, set_field

SELinuxChangePolicy: TypeAlias = Literal["Recursive"]
"""The value of the remedy. `MountOption` is not allowed, because an API server without SELinuxMount
rejects it."""


_FIELD = "/spec/securityContext/seLinuxChangePolicy"


def apply(
    pod: PodFacts, settings: SELinuxChangePolicy, context: Context, patch: PodPatch
) -> Iterator[Outcome]:
    """Set `spec.securityContext.seLinuxChangePolicy` if the pod does not set it."""
    security = pod.security_context
    present = security.se_linux_change_policy if security else None
    if present == settings:
        yield Outcome(Reason.ALREADY_SETTLED)
    elif present:
        message = f"the pod sets seLinuxChangePolicy: {present}"
        yield Outcome(Reason.SELINUX_CHANGE_POLICY_PRESET, message=message)
    elif message := context.server_is_older_than(SELINUX_CHANGE_POLICY_ON_BY_DEFAULT):
        yield Outcome(Reason.SERVER_TOO_OLD, message=message)
    else:
        patch.set_field(_FIELD, settings)
        yield Outcome(Reason.APPLIED, changed=True, message=f"set to {settings}")


def native(settings: SELinuxChangePolicy, cluster: ClusterView) -> NativeRemedy:
    """Return the remedy as CEL expressions. Raises NotNativeError for an old API server."""
    server, minimum = cluster.server_version, SELINUX_CHANGE_POLICY_ON_BY_DEFAULT
    if server is not None and server < minimum:
        needs = f"it needs Kubernetes {minimum.major}.{minimum.minor} or later"
        raise NotNativeError(f"{needs}; the API server is Kubernetes {server}")
    # The API server's defaults contain an empty securityContext.
    security = "object.spec.securityContext"
    return NativeRemedy(
        condition=all_of(f"has({security})", f"!has({security}.seLinuxChangePolicy)"),
        patch=(set_field(_FIELD, quote(settings)),),
    )


REMEDY = Remedy(
    name="seLinuxChangePolicy",
    description="Recursive: the pod's volumes are not mounted by Kubernetes 1.37's SELinuxMount. "
    "Needs an API server of 1.33 or later.",
    settings=SELinuxChangePolicy,
    apply=apply,
    own_reasons=frozenset({Reason.SELINUX_CHANGE_POLICY_PRESET, Reason.SERVER_TOO_OLD}),
    effect=lambda settings: f"set to seLinuxChangePolicy {settings}",
    proposed_settings=lambda _found: "Recursive",
    native=Native("seLinuxChangePolicy", native),
    fields=frozenset({_FIELD}),
)
