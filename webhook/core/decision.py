"""What podsettle decided about a pod, and why: one Decision that every channel renders.

The reasons are a closed set of codes, the same in warnings, audit annotations, metric labels,
logs, `/preview`, the page and the command line.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    from webhook.core.image_config import ImageQuery

Operation: TypeAlias = dict[str, Any]
"""One RFC 6902 operation, ready to be encoded."""

WARNING_LENGTH = 256
"""Characters: the API server may cut longer warnings (admission.k8s.io/v1 `response.warnings`)."""


class Reason(StrEnum):
    """Why a remedy was or was not applied. Names are part of the contract; never rename one."""

    APPLIED = "Applied"
    WOULD_APPLY = "WouldApply"
    ALREADY_SETTLED = "AlreadySettled"

    NO_POLICY = "NoPolicy"
    POLICY_NOT_FOUND = "PolicyNotFound"
    NAMESPACE_DISABLED = "NamespaceDisabled"
    NAMESPACE_UNKNOWN = "NamespaceUnknown"
    PROTECTED_NAMESPACE = "ProtectedNamespace"
    NOT_POD_CREATE = "NotPodCreate"
    POD_OPTED_OUT = "PodOptedOut"
    UNKNOWN_REMEDY = "UnknownRemedy"
    ANNOTATIONS_FULL = "AnnotationsFull"
    MIRROR_POD = "MirrorPod"
    WINDOWS_POD = "WindowsPod"
    POD_TOO_LARGE = "PodTooLarge"

    NO_COMMAND = "NoCommand"
    IMAGE_CONFIG_UNAVAILABLE = "ImageConfigUnavailable"
    NO_SHELL = "NoShell"
    INTERACTIVE = "Interactive"
    NATIVE_SIDECAR = "NativeSidecar"
    MESH_INIT_CONTAINER = "MeshInitContainer"
    LONG_RUNNING = "LongRunning"
    NAME_CONFLICT = "NameConflict"
    HELPER_IMAGE_MISSING = "HelperImageMissing"
    NOT_NEEDED = "NotNeeded"
    SERVER_TOO_OLD = "ServerTooOld"
    RESTART_POLICY_PRESET = "RestartPolicyPreset"
    SYSTEM_POD = "SystemPod"
    MESH_TRAFFIC = "MeshTraffic"

    RUNTIME_CLASS_MISSING = "RuntimeClassMissing"
    RUNTIME_CLASS_CONFLICT = "RuntimeClassConflict"
    RUNTIME_CLASS_PRESET = "RuntimeClassPreset"
    NO_PERSISTENT_VOLUME = "NoPersistentVolume"
    ANNOTATION_PRESET = "AnnotationPreset"
    SELINUX_CHANGE_POLICY_PRESET = "SELinuxChangePolicyPreset"
    UNSTABLE_SELINUX_LEVEL = "UnstableSELinuxLevel"

    MALFORMED_POD = "MalformedPod"
    UNSUPPORTED_REVIEW = "UnsupportedReview"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    OVERLOADED = "Overloaded"
    INTERNAL_ERROR = "InternalError"

    @property
    def meaning(self) -> str:
        """One sentence for the documentation and the page."""
        return _ABOUT[self].meaning

    @property
    def warns(self) -> bool:
        """Whether a person should act on it: then `kubectl` prints it as a warning."""
        return _ABOUT[self].warns


class _About(NamedTuple):
    meaning: str
    warns: bool = False


_ABOUT: dict[Reason, _About] = {
    Reason.APPLIED: _About("The remedy is in the patch."),
    Reason.WOULD_APPLY: _About(
        "A policy with `action: Audit` would have applied the remedy; nothing was changed."
    ),
    Reason.ALREADY_SETTLED: _About("The pod or container already carries the remedy."),
    Reason.NO_POLICY: _About("No policy covers the pod."),
    Reason.POLICY_NOT_FOUND: _About(
        "The namespace's label `podsettle.dev/policy` names a policy that does not exist.", True
    ),
    Reason.NAMESPACE_DISABLED: _About(
        'The namespace is labelled `podsettle.dev/enabled: "false"`.'
    ),
    Reason.NAMESPACE_UNKNOWN: _About(
        "podsettle does not know the namespace, so it cannot tell which policies cover it.", True
    ),
    Reason.PROTECTED_NAMESPACE: _About(
        "`kube-*`, `openshift-*` and podsettle's own namespace are left alone unless a policy's "
        "`namespaceSelector` names one by `kubernetes.io/metadata.name`."
    ),
    Reason.NOT_POD_CREATE: _About("Only the creation of pods is covered."),
    Reason.POD_OPTED_OUT: _About("The pod's annotation `podsettle.dev/skip` says so."),
    Reason.UNKNOWN_REMEDY: _About(
        "The pod's annotation `podsettle.dev/skip` names a remedy that does not exist.", True
    ),
    Reason.ANNOTATIONS_FULL: _About(
        "The pod's annotations leave no room for podsettle's: the API server takes 256 KiB.", True
    ),
    Reason.MIRROR_POD: _About(
        "A mirror pod: the kubelet would delete it if its spec were changed."
    ),
    Reason.WINDOWS_POD: _About("The pod runs on Windows."),
    Reason.POD_TOO_LARGE: _About(
        "The pod has more containers than podsettle looks at, 1,000: it would keep others waiting.",
        True,
    ),
    Reason.NO_COMMAND: _About(
        "The container has no `command`: what to wrap is in the image, which the pod does not "
        "hold. Set `command` to the image's entrypoint.",
        True,
    ),
    Reason.IMAGE_CONFIG_UNAVAILABLE: _About(
        "The container has no `command`, and what its image starts could not be learned in time "
        "from its registry. Set `command` to the image's entrypoint.",
        True,
    ),
    Reason.NO_SHELL: _About(
        "`delivery: Shell` and the command does not start with a known shell.", True
    ),
    Reason.INTERACTIVE: _About(
        "`delivery: Shell` and the container takes stdin or a tty, which the shell wrapper "
        "cannot pass on.",
        True,
    ),
    Reason.NATIVE_SIDECAR: _About(
        "A sidecar: an init container with `restartPolicy: Always`, or a Tekton `sidecar-*`."
    ),
    Reason.MESH_INIT_CONTAINER: _About("An init container of a service mesh; never wrapped."),
    Reason.LONG_RUNNING: _About(
        "A regular container that is not meant to finish: it has probes, or the pod's "
        "`restartPolicy` is Always."
    ),
    Reason.NAME_CONFLICT: _About(
        "The pod already uses the name `podsettle-linger` or `podsettle-kubelet-gate`, or the path "
        "`/podsettle`, for something else.",
        True,
    ),
    Reason.HELPER_IMAGE_MISSING: _About(
        "The remedy needs the helper and podsettle was started without `--linger-image` (the "
        "chart value `lingerImage`).",
        True,
    ),
    Reason.NOT_NEEDED: _About("No node that the pod could land on has the defect."),
    Reason.SERVER_TOO_OLD: _About(
        "The API server or a node does not support what the remedy needs.", True
    ),
    Reason.RESTART_POLICY_PRESET: _About(
        "The init container already sets a `restartPolicy` of its own, which is never replaced."
    ),
    Reason.SYSTEM_POD: _About(
        "A pod that its node may need early: it tolerates every taint, belongs to a DaemonSet, is "
        "`system-node-critical`, or uses the host's network in a `kube-*` or `openshift-*` "
        "namespace."
    ),
    Reason.MESH_TRAFFIC: _About(
        "A service mesh's CNI plugin takes the pod's connections before its proxy runs, so an init "
        "container reaches nothing.",
        True,
    ),
    Reason.RUNTIME_CLASS_MISSING: _About(
        "The RuntimeClass does not exist; the API server would refuse the pod.", True
    ),
    Reason.RUNTIME_CLASS_CONFLICT: _About(
        "The RuntimeClass disagrees with the pod's overhead, nodeSelector or node, or with another "
        "remedy's class; the pod would be refused or never run.",
        True,
    ),
    Reason.RUNTIME_CLASS_PRESET: _About(
        "The pod already names another RuntimeClass, which is never replaced.", True
    ),
    Reason.NO_PERSISTENT_VOLUME: _About(
        "The pod mounts no persistent volume and the policy covers only those that do."
    ),
    Reason.ANNOTATION_PRESET: _About("The pod already sets the annotation to another value."),
    Reason.SELINUX_CHANGE_POLICY_PRESET: _About(
        "The pod already sets `seLinuxChangePolicy` to another value, which is never replaced."
    ),
    Reason.UNSTABLE_SELINUX_LEVEL: _About(
        "Applied, but without effect until the pod or its namespace fixes "
        "`seLinuxOptions.level`: a level that changes with each start relabels each time.",
        True,
    ),
    Reason.MALFORMED_POD: _About("A field of the pod has a type that Kubernetes would not send."),
    Reason.UNSUPPORTED_REVIEW: _About("Not an AdmissionReview of `admission.k8s.io/v1`.", True),
    Reason.DEADLINE_EXCEEDED: _About(
        "The review had not come to its end when podsettle had to answer.", True
    ),
    Reason.OVERLOADED: _About(
        "podsettle has more reviews to answer than it can in time, and lets some pass unread.", True
    ),
    Reason.INTERNAL_ERROR: _About(
        "A defect of podsettle's own. The pod was admitted unchanged; please report it.", True
    ),
}


class Outcome(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One reason: for a remedy, and for a container where the remedy works on containers.

    `remedy` is empty where the reason holds for the whole pod; `changed` says that the patch
    carries something for it; `message` adds what the code alone does not tell.
    """

    reason: Reason
    remedy: str = ""
    policy: str = ""
    container: str = ""
    changed: bool = False
    message: str = ""


class Decision(msgspec.Struct, frozen=True):
    """What is answered: always allowed; `operations` is empty where nothing changes."""

    outcomes: tuple[Outcome, ...] = ()
    operations: tuple[Operation, ...] = ()
    policies: tuple[str, ...] = ()
    lacking: tuple[ImageQuery, ...] = ()
    """Images that have to be looked up for the decision to be better."""

    @property
    def warnings(self) -> list[str]:
        """For `kubectl` to print: what a person should act on, one line per remedy and reason."""
        groups: dict[tuple[str, Reason, str], list[str]] = {}
        for outcome in self.outcomes:
            if outcome.reason.warns:
                key = (outcome.remedy, outcome.reason, outcome.message)
                groups.setdefault(key, []).append(outcome.container)
        return [_warning(*key, containers) for key, containers in groups.items()]

    @property
    def audit_annotations(self) -> dict[str, str]:
        """For the audit log: what was applied and what was not, each with its reason."""
        applied: list[str] = []
        skipped: list[str] = []
        for outcome in self.outcomes:
            (applied if outcome.changed else skipped).append(_audit(outcome))
        annotations = {}
        if applied:
            annotations["applied"] = " ".join(applied)
        if skipped:
            annotations["skipped"] = " ".join(skipped)
        return annotations


def _warning(remedy: str, reason: Reason, message: str, containers: list[str]) -> str:
    named = [name for name in containers if name]
    who = ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")
    subject = ": ".join(part for part in ("podsettle", remedy, str(reason), who) if part)
    text = f"{subject}: {message or reason.meaning}"
    return text if len(text) <= WARNING_LENGTH else text[: WARNING_LENGTH - 3] + "..."


def _audit(outcome: Outcome) -> str:
    reason, remedy, policy, container, _, _ = msgspec.structs.astuple(outcome)
    subject = f"{policy}/{remedy}" if policy and remedy else policy or remedy
    if container:
        subject += f"[{container}]"
    return f"{subject}={reason}" if subject else str(reason)
