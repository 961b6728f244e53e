"""fsGroupChangePolicy: keep the kubelet from changing the owner of every file of a volume.

If a pod sets `fsGroup`, the kubelet changes the group and the mode of every file of a volume each
time that it mounts the volume (kubernetes issue 69699). With `OnRootMismatch` it does so only if
the top directory of the volume has another group or mode (KEP-695). All API servers from
Kubernetes 1.20 on have the field.

The remedy has no setting `when`, because no release makes it unnecessary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from webhook.core.cel import all_of, quote
from webhook.core.cluster.view import ClusterView
from webhook.core.decision_input import PodFacts
from webhook.core.patch.builder import PodPatch
from webhook.core.reasons import Outcome, Reason
from webhook.core.remedies.base import Context, Remedy
from webhook.core.remedies.native import HAS_PERSISTENT_VOLUME, Native, NativeRemedy, set_field

FSGroupChangePolicy: TypeAlias = Literal["OnRootMismatch"]
"""The value of the remedy. The other value, `Always`, is what the kubelet does by default."""

_FIELD = "/spec/securityContext/fsGroupChangePolicy"


def apply(
    pod: PodFacts, settings: FSGroupChangePolicy, _context: Context, patch: PodPatch
) -> Iterator[Outcome]:
    """Set `spec.securityContext.fsGroupChangePolicy` if the kubelet would change owners.

    The kubelet does so for persistent volumes of pods with `fsGroup`. The field has no effect on
    volumes such as `emptyDir` and `configMap`.
    """
    security = pod.security_context
    present = security.fs_group_change_policy if security else None
    if present == settings:
        yield Outcome(Reason.ALREADY_SETTLED)
    elif present:
        message = f"the pod sets fsGroupChangePolicy: {present}"
        yield Outcome(Reason.FIELD_PRESET, message=message)
    elif security is None or security.fs_group is None:
        message = "the pod sets no fsGroup, so the kubelet changes no owners"
        yield Outcome(Reason.NOT_APPLICABLE, message=message)
    elif not pod.has_persistent_volume:
        yield Outcome(Reason.NO_PERSISTENT_VOLUME)
    else:
        patch.set_field(_FIELD, settings)
        yield Outcome(Reason.APPLIED, changed=True, message=f"set to {settings}")


def native(settings: FSGroupChangePolicy, _cluster: ClusterView) -> NativeRemedy:
    """Return the remedy as CEL expressions."""
    security = "object.spec.?securityContext"
    return NativeRemedy(
        condition=all_of(
            f"{security}.?fsGroup.hasValue()",
            f"!{security}.?fsGroupChangePolicy.hasValue()",
            HAS_PERSISTENT_VOLUME,
        ),
        patch=(set_field(_FIELD, quote(settings)),),
    )


REMEDY = Remedy(
    name="fsGroupChangePolicy",
    description="OnRootMismatch: the kubelet changes the owners of a volume's files only if the "
    "top directory has another group or mode. For pods with an fsGroup and a persistent volume.",
    settings=FSGroupChangePolicy,
    apply=apply,
    own_reasons=frozenset(
        {Reason.FIELD_PRESET, Reason.NOT_APPLICABLE, Reason.NO_PERSISTENT_VOLUME}
    ),
    effect=lambda settings: f"set to fsGroupChangePolicy {settings}",
    proposed_settings=lambda _found: "OnRootMismatch",
    native=Native("fsGroupChangePolicy", native),
    fields=frozenset({_FIELD}),
)
