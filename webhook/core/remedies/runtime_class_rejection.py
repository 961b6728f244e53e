"""The reasons for which a pod cannot run under a RuntimeClass.

The in-tree RuntimeClass plugin runs again after a webhook changed the pod. It merges the class's
nodeSelector and tolerations into the pod and sets its overhead. It rejects the pod if the pod and
the class disagree (kubernetes `plugin/pkg/admission/runtimeclass/admission.go`). podsettle makes
the same checks first, and skips the remedy instead.

The API server does not check the class's handler. A kubelet cannot start a pod whose handler its
runtime lacks. From Kubernetes 1.30 on, nodes list their handlers (KEP-3857).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from webhook.core.cel import NODE_TERMS, all_of
from webhook.core.cluster.nodes import HOSTNAME_LABEL, names_nodes
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.cluster.view import ClusterView
from webhook.core.decision_input import PodFacts
from webhook.core.patch.builder import PodPatch
from webhook.core.pod import SpecFields
from webhook.core.quantities import parse_quantity
from webhook.core.reasons import Reason
from webhook.core.remedies.base import Context
from webhook.core.remedies.crio_handler import LOSS_REASONS, handler_loss
from webhook.core.remedies.native import NotNativeError

REJECTION_REASONS = LOSS_REASONS | frozenset(
    {
        Reason.RUNTIME_CLASS_PRESET,
        Reason.RUNTIME_CLASS_CONFLICT,
        Reason.RUNTIME_CLASS_MISSING,
        Reason.RUNTIME_CLASS_UNHANDLED,
    }
)
"""The reasons that `rejection_reason` gives."""


def rejection_reason(
    class_name: str, pod: PodFacts, context: Context, patch: PodPatch, *, is_crio: bool = False
) -> tuple[Reason, str] | None:
    """Return why the pod cannot get a RuntimeClass, as a reason and a message, or None if it can.

    `patch` has the class that an earlier remedy has set, if any. With `is_crio`, the class is known
    to have a handler of CRI-O. Raises one of DECODE_ERRORS.
    """
    runtime_class = context.cluster.runtime_classes.get(class_name)
    if pod.runtime_class_name:
        message = f"the pod already names RuntimeClass {pod.runtime_class_name!r}"
        return Reason.RUNTIME_CLASS_PRESET, message
    if patch.runtime_class_name not in (None, class_name):
        message = f"another remedy puts the pod under RuntimeClass {patch.runtime_class_name!r}"
        return Reason.RUNTIME_CLASS_CONFLICT, message
    if runtime_class is None:
        return Reason.RUNTIME_CLASS_MISSING, f"RuntimeClass {class_name!r} does not exist"
    if conflict := conflict_with(runtime_class, pod.overhead or {}, pod.node_selector or {}):
        return Reason.RUNTIME_CLASS_CONFLICT, conflict
    if pod.node_name and runtime_class.node_selector:
        # The kubelet of that node refuses a pod whose nodeSelector it does not match.
        message = (
            f"the pod is bound to node {pod.node_name!r} and RuntimeClass {class_name!r} "
            "chooses nodes"
        )
        return Reason.RUNTIME_CLASS_CONFLICT, message
    handler, spec = runtime_class.handler, context.spec_with_runtime_class(pod, patch, class_name)
    nodes = context.cluster.nodes
    if spec is not pod and nodes.all:
        # A DaemonSet does not look at the nodes of a class, so pods for the other nodes would stay
        # Pending (kubernetes/kubernetes#111590). So would a pod that names its node.
        is_of_daemon_set = "DaemonSet" in pod.owner_kinds
        if is_of_daemon_set and not nodes.all_fit(pod, spec):
            message = f"the pod's DaemonSet chooses nodes that RuntimeClass {class_name!r} does not"
            return Reason.RUNTIME_CLASS_CONFLICT, message
        if names_nodes(pod) and not nodes.any_fits(spec):
            message = f"the pod names a node that RuntimeClass {class_name!r} does not choose"
            return Reason.RUNTIME_CLASS_CONFLICT, message
    if nodes.lacks_handler(handler, spec):
        message = (
            f"no node that the pod could land on lists the handler {handler!r} of RuntimeClass "
            f"{class_name!r}"
        )
        return Reason.RUNTIME_CLASS_UNHANDLED, message
    return handler_loss(pod, runtime_class, is_crio=is_crio)


_BY_NAME = f'label.operator == "In" && label.key in ["metadata.name", "{HOSTNAME_LABEL}"]'
_CHOOSES_NODES = f"""\
object.metadata.?ownerReferences.orValue([]).exists(owner, owner.kind == "DaemonSet")
      || object.spec.?nodeSelector[?"{HOSTNAME_LABEL}"].hasValue()
      || size({NODE_TERMS}) > 0 && {NODE_TERMS}.all(term,
        term.?matchFields.orValue([]).exists(label, {_BY_NAME})
        || term.?matchExpressions.orValue([]).exists(label, {_BY_NAME}))"""
"""Whether a pod is of a DaemonSet or names its nodes, in CEL, which knows no labels of nodes."""

NATIVE_CONDITION = all_of(
    "!has(object.spec.runtimeClassName)",
    "!has(object.spec.overhead)",
    "params.?scheduling.?nodeSelector.orValue({}).all(key, !has(object.spec.nodeName)\n"
    "  && (object.spec.?nodeSelector[?key].hasValue()\n"
    "    ? object.spec.nodeSelector[key] == params.scheduling.nodeSelector[key]\n"
    f"    : !({_CHOOSES_NODES})))",
)
"""Whether a pod can get the RuntimeClass `params`, in CEL.

The API server refuses a pod that has an overhead of its own and no RuntimeClass. The expression
leaves such a pod as it is, even if the overhead is that of the class."""


CLASS_LIMITS = (
    "while the class is missing, the API server skips the whole policy; the handlers of nodes "
    "count when the policy is exported; a class that chooses nodes leaves pods of DaemonSets, and "
    "pods that name nodes"
)
"""The limits of native policies that set a RuntimeClass."""


def require_handler(class_name: str, cluster: ClusterView) -> None:
    """Raise NotNativeError if no known node could start a pod with a RuntimeClass."""
    found = cluster.runtime_classes.get(class_name)
    if found is not None and cluster.nodes.lacks_handler(
        found.handler, SpecFields(node_selector=dict(found.node_selector))
    ):
        raise NotNativeError(
            f"no node lists the handler {found.handler!r} of RuntimeClass {class_name!r}"
        )


def conflict_with(
    runtime_class: RuntimeClassInfo, overhead: Mapping[str, Any], selector: Mapping[str, Any]
) -> str:
    """Return why the API server refuses a pod with these fields and the class, or an empty text."""
    if overhead and _amounts(overhead) != _amounts(runtime_class.overhead):
        return f"the pod's overhead is not that of RuntimeClass {runtime_class.name!r}"
    for key, value in runtime_class.node_selector.items():
        current = selector.get(key, value)
        if current != value:
            return (
                f"RuntimeClass {runtime_class.name!r} wants nodeSelector {key}={value}, the pod "
                f"has {current}"
            )
    return ""


def _amounts(quantities: Mapping[str, Any]) -> dict[str, Decimal | str]:
    """Return quantities as numbers, where they are valid: `1` and `1000m` are the same number."""
    texts = {key: str(quantity) for key, quantity in quantities.items()}
    return {
        key: text if (number := parse_quantity(text)) is None else number
        for key, text in texts.items()
    }
