"""runtimeClass: run the pod on nodes whose configuration avoids a defect.

An example is a class for nodes with volatile overlayfs mounts. On nodes without them, containerd's
slow umount of a finished init container's rootfs leaves the container Running for minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from webhook.core.cel import all_of, quote
from webhook.core.cluster.remedy_need import Need
from webhook.core.cluster.runtime_classes import RuntimeClassName
from webhook.core.cluster.view import ClusterView
from webhook.core.decision_input import PodFacts
from webhook.core.patch.builder import PodPatch
from webhook.core.reasons import Outcome, Reason
from webhook.core.remedies.base import Context, Remedy, RuntimeClassSetting
from webhook.core.remedies.crio_handler import native_condition
from webhook.core.remedies.native import Native, NativeRemedy, set_field
from webhook.core.remedies.policy_nodes import PolicyNodes
from webhook.core.remedies.runtime_class_rejection import (
    CLASS_LIMITS,
    NATIVE_CONDITION,
    REJECTION_REASONS,
    rejection_reason,
    require_handler,
)
from webhook.core.types import StrictModel

_FIELD = "/spec/runtimeClassName"


class RuntimeClassRemedy(StrictModel):
    """Settings of the remedy `runtimeClass`."""

    name: RuntimeClassName = Field(description="The RuntimeClass under which the pods run.")
    # The default is Always because a class may exist for any purpose. A pod that has to run under
    # kata must not lose its sandbox because of the nodes' runtime versions.
    when: Literal["NodesNeedIt", "Always"] = Field(
        default="Always",
        description="Always: apply the remedy on all nodes. NodesNeedIt is for a class whose only "
        "purpose is volatile overlayfs mounts: skip the remedy if every node that the pod could "
        "land on without the class runs CRI-O 1.22 or later, which makes volatile mounts without "
        "it.",
    )


def apply(
    pod: PodFacts, settings: RuntimeClassRemedy, context: Context, patch: PodPatch
) -> Iterator[Outcome]:
    """Set `spec.runtimeClassName` if the pod can run under the class."""
    if pod.runtime_class_name == settings.name:
        yield Outcome(Reason.ALREADY_SETTLED)
        return
    # The check covers the nodes on which the pod could land without the class, because the nodes of
    # the class may all be free of the defect.
    if settings.when == "NodesNeedIt" and not context.cluster.nodes.need(
        "runtimeClass", context.spec_with_runtime_class(pod, patch)
    ):
        message = (
            "every node that the pod could land on runs CRI-O 1.22 or later, which makes "
            "volatile mounts without the class"
        )
        yield Outcome(Reason.NOT_NEEDED, message=message)
        return
    rejection = rejection_reason(settings.name, pod, context, patch)
    if rejection:
        yield Outcome(rejection[0], message=rejection[1])
        return
    patch.set_field(_FIELD, settings.name)
    message = f"put under {settings.name}{context.no_matching_node_note(settings.name)}"
    yield Outcome(Reason.APPLIED, changed=True, message=message)


def still_needed(settings: RuntimeClassRemedy, nodes: PolicyNodes) -> Need | None:
    """Return whether a node lacks volatile mounts, if the class is only for these."""
    return nodes.need("runtimeClass") if settings.when == "NodesNeedIt" else None


def native(settings: RuntimeClassRemedy, cluster: ClusterView) -> NativeRemedy:
    """Return the remedy as CEL expressions. Raises NotNativeError if no node has the handler."""
    require_handler(settings.name, cluster)
    return NativeRemedy(
        condition=all_of(NATIVE_CONDITION, native_condition(is_crio=False)),
        patch=(set_field(_FIELD, quote(settings.name)),),
    )


REMEDY = Remedy(
    name="runtimeClass",
    description="Run the pod under a RuntimeClass.",
    settings=RuntimeClassRemedy,
    apply=apply,
    own_reasons=REJECTION_REASONS | {Reason.NOT_NEEDED},
    effect=lambda settings: f"put under RuntimeClass {settings.name}",
    # The name of the class that `podsettle node-config` creates.
    proposed_settings=lambda _found: {"name": "overlay-volatile"},
    native=Native("put under RuntimeClass", native, limits=CLASS_LIMITS),
    node_configuration="podsettle node-config containerd",
    fields=frozenset({_FIELD}),
    still_needed=still_needed,
    # Pods that name another class stay where they are. They do not matter for StillNeeded, because
    # with `when: Always` this remedy keeps the policy needed.
    runtime_class=RuntimeClassSetting("name", lambda settings: settings.when == "Always"),
)
