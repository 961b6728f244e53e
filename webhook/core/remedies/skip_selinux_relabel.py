"""skipSELinuxRelabel: let CRI-O skip the relabelling of volumes that have the right label.

CRI-O visits every file of a volume at each start, and writes the labels that differ. The annotation
TrySkipVolumeSELinuxLabel makes it compare the label of the volume's top directory first (cri-o
`server/label_linux.go`). The runtime handler or the workload has to allow the annotation. It has an
effect only if the pod's SELinux level is the same at each start. Otherwise it does no harm.

The remedy is skipped if no node that the pod could land on runs CRI-O, because no other runtime
reads the annotation. It is not skipped for Kubernetes 1.37's SELinuxMount (KEP-1710), which makes
relabelling unnecessary for some CSI drivers. podsettle does not see the drivers of a pod's volumes,
and claims may not be bound yet. A needless annotation has no effect. A missing one costs minutes at
each start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from webhook.core.cel import all_of, any_of, indent, quote, quoted_list
from webhook.core.cluster.remedy_need import Need
from webhook.core.cluster.runtime_classes import RuntimeClassName
from webhook.core.cluster.view import ClusterView
from webhook.core.constants import (
    ANNOTATION_NAMESPACE_LEVEL,
    OWN_CONTAINERS,
    SKIP_RELABEL_ANNOTATIONS,
)
from webhook.core.decision_input import PodFacts
from webhook.core.patch.builder import PodPatch
from webhook.core.patch.edits import Edit
from webhook.core.pod import PodSpec, SecurityContext
from webhook.core.reasons import Outcome, Reason
from webhook.core.remedies.base import Context, Remedy, RuntimeClassSetting
from webhook.core.remedies.crio_handler import (
    native_condition,
    native_condition_of_workload,
    other_workload,
)
from webhook.core.remedies.native import (
    HAS_PERSISTENT_VOLUME,
    Native,
    NativeRemedy,
    set_annotation,
    set_field,
)
from webhook.core.remedies.policy_nodes import PolicyNodes
from webhook.core.remedies.runtime_class_rejection import (
    NATIVE_CONDITION,
    REJECTION_REASONS,
    rejection_reason,
    require_handler,
)
from webhook.core.types import StrictModel

_FIELD = "/spec/runtimeClassName"


class SkipSELinuxRelabel(StrictModel):
    """Settings of the remedy `skipSELinuxRelabel`."""

    when: Literal["NodesNeedIt", "Always"] = Field(
        default="NodesNeedIt",
        description="NodesNeedIt: skip the remedy if no node that the pod could land on runs "
        "CRI-O, the only runtime that knows the annotation. Always: apply it on all nodes.",
    )
    pods: Literal["WithPersistentVolumes", "All"] = Field(
        default="WithPersistentVolumes",
        description="WithPersistentVolumes: only pods with a writable persistent volume claim or a "
        "generic ephemeral volume. All: every pod.",
    )
    runtime_class_name: RuntimeClassName | None = Field(
        default=None,
        description="The RuntimeClass whose CRI-O handler allows the annotation. Omitted: "
        "podsettle sets only the annotations, which suits a CRI-O workload or a default handler "
        "that allows them.",
    )


def apply(
    pod: PodFacts, settings: SkipSELinuxRelabel, context: Context, patch: PodPatch
) -> Iterator[Outcome]:
    """Set both annotations and the class, or change nothing if one of them cannot be set."""
    if settings.pods == "WithPersistentVolumes" and not pod.has_persistent_volume:
        yield Outcome(Reason.NO_PERSISTENT_VOLUME)
        return
    if relabels_nothing(pod):
        yield Outcome(Reason.NOT_NEEDED, message="seLinuxOptions.type spc_t is never relabelled")
        return
    if settings.runtime_class_name is None and (activated := other_workload(pod)) is not None:
        yield Outcome(Reason.OTHER_WORKLOAD, message=f"the pod has the annotation {activated}")
        return
    annotations = pod.annotations or {}
    for key in SKIP_RELABEL_ANNOTATIONS:
        value = annotations.get(key, "true")
        if value != "true":
            yield Outcome(Reason.ANNOTATION_PRESET, message=f"the pod sets {key}: {value!r}")
            return
    class_name = settings.runtime_class_name
    missing_annotations = [key for key in SKIP_RELABEL_ANNOTATIONS if key not in annotations]
    present = (pod.runtime_class_name, patch.runtime_class_name)  # Another remedy may set it.
    class_missing = class_name is not None and class_name not in present
    if not missing_annotations and not class_missing:
        yield Outcome(Reason.ALREADY_SETTLED)
        return
    if settings.when == "NodesNeedIt" and not context.cluster.nodes.need(
        "skipSELinuxRelabel", context.spec_with_runtime_class(pod, patch, class_name)
    ):
        message = "no node that the pod could land on runs CRI-O"
        yield Outcome(Reason.NOT_NEEDED, message=message)
        return
    if class_name is not None and class_missing:
        rejection = rejection_reason(class_name, pod, context, patch, is_crio=True)
        if rejection:
            yield Outcome(rejection[0], message=rejection[1])
            return
    for key in missing_annotations:
        patch.annotate(key, "true")
    if class_name is not None and class_missing:
        patch.set_field(_FIELD, class_name)
    stable = _level_is_stable(pod) or context.namespace.fixed_selinux_level
    if not stable:
        yield Outcome(Reason.UNSTABLE_SELINUX_LEVEL, changed=True)
        return
    message = "annotated"
    if class_name is not None and class_missing:
        message += f", put under {class_name}{context.no_matching_node_note(class_name)}"
    yield Outcome(Reason.APPLIED, changed=True, message=message)


def relabels_nothing(pod: PodFacts | PodSpec) -> bool:
    """Return whether all containers have the type spc_t, for which CRI-O relabels no volume.

    A container without a type has that of the pod (`configureSELinuxLabels` in cri-o
    `server/container_create.go`). podsettle's own containers mount no volume with many files.
    """
    of_pod = _type(pod.security_context)
    inits = [each for each in pod.init_containers or () if each.name not in OWN_CONTAINERS]
    containers = [*inits, *(pod.containers or ())]
    return {_type(each.security_context) or of_pod for each in containers} == {"spc_t"}


def _type(security: SecurityContext | None) -> str:
    options = security.se_linux_options if security else None
    return (options.type or "") if options else ""


def _level_is_stable(pod: PodFacts) -> bool:
    return _fixes_level(pod.security_context) or all(
        _fixes_level(container.security_context) for container in pod.containers or ()
    )


def _fixes_level(security: SecurityContext | None) -> bool:
    options = security.se_linux_options if security else None
    return options is not None and bool(options.level)


def still_needed(settings: SkipSELinuxRelabel, nodes: PolicyNodes) -> Need | None:
    """Return whether CRI-O relabels volumes on a node where the remedy annotates pods."""
    class_name = settings.runtime_class_name
    # The remedy annotates only pods that run under its class.
    return (nodes.of_class(class_name) if class_name else nodes).need("skipSELinuxRelabel")


def effect(settings: SkipSELinuxRelabel) -> str:
    """Return what the remedy does to a pod."""
    name = settings.runtime_class_name
    under = f" under RuntimeClass {name}" if name else ""
    return f"started{under} without relabelling volumes that have the right label"


def native(settings: SkipSELinuxRelabel, cluster: ClusterView) -> NativeRemedy:
    """Return the remedy as CEL expressions. Raises NotNativeError if no node has the handler."""
    class_name = settings.runtime_class_name
    values = [f'object.metadata.?annotations[?"{key}"]' for key in SKIP_RELABEL_ANNOTATIONS]
    conditions = [f'{value}.orValue("true") == "true"' for value in values]
    if settings.pods == "WithPersistentVolumes":
        conditions.append(HAS_PERSISTENT_VOLUME)
    options = "securityContext.?seLinuxOptions"
    of_pod, own_type = (f'{each}.?{options}.?type.orValue("")' for each in ("object.spec", "c"))
    is_relabelled = f'({own_type} == ""\n    ? {of_pod} : {own_type}) != "spc_t"'
    is_own = f"c.name in {quoted_list(sorted(OWN_CONTAINERS))}"
    conditions.append(
        f"(object.spec.containers.exists(c, {is_relabelled})\n"
        "  || object.spec.?initContainers.orValue([]).exists(c,\n"
        f"    !({is_own}) && {is_relabelled}))"
    )
    patch = [set_annotation(key, '"true"') for key in SKIP_RELABEL_ANNOTATIONS]
    lacks_annotation = any_of(*(f"!{value}.hasValue()" for value in values))
    if class_name is None:
        conditions += [lacks_annotation, native_condition_of_workload()]
    else:
        require_handler(class_name, cluster)
        has_class = f'object.spec.?runtimeClassName.orValue("") == {quote(class_name)}'
        can_have_class = all_of(NATIVE_CONDITION, native_condition(is_crio=True))
        conditions.append(f"({has_class}\n  ? {lacks_annotation}\n  : {indent(can_have_class)})")
        patch.append(f"({has_class} ? [] : {set_field(_FIELD, quote(class_name))})")
    level = f"{options}.?level.hasValue()"
    is_stable = "\n|| ".join(
        [
            f"object.spec.?{level}",
            f"object.spec.containers.all(c, c.?{level})",
            f'namespaceObject.metadata.?annotations[?"{ANNOTATION_NAMESPACE_LEVEL}"].hasValue()',
        ]
    )
    return NativeRemedy(
        condition=all_of(*conditions),
        patch=tuple(patch),
        warning=f'{is_stable}\n? "" : "{Reason.UNSTABLE_SELINUX_LEVEL}"',
    )


REMEDY = Remedy(
    name="skipSELinuxRelabel",
    description="Let CRI-O skip the relabelling of a volume whose top directory already has the "
    "label.",
    settings=SkipSELinuxRelabel,
    apply=apply,
    own_reasons=REJECTION_REASONS
    | {
        Reason.NO_PERSISTENT_VOLUME,
        Reason.NOT_NEEDED,
        Reason.ANNOTATION_PRESET,
        Reason.OTHER_WORKLOAD,
        Reason.UNSTABLE_SELINUX_LEVEL,
    },
    effect=effect,
    # The name of the class that `podsettle node-config` creates.
    proposed_settings=lambda _found: {"runtimeClassName": "selinux-fix-runtime-class"},
    native=Native("without relabelling volumes", native, limits="with a RuntimeClass as above"),
    node_configuration="podsettle node-config crio",
    annotations=frozenset(SKIP_RELABEL_ANNOTATIONS),
    edits=frozenset({Edit.ANNOTATION}),
    fields=frozenset({_FIELD}),
    still_needed=still_needed,
    runtime_class=RuntimeClassSetting("runtime_class_name"),
)
