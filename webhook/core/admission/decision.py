"""What podsettle decided about a pod, and why: one Decision that every channel renders.

The reasons are a closed set of codes, the same in warnings, audit annotations, metric labels,
logs, `/preview`, the page and the command line.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

if TYPE_CHECKING:
    from webhook.core.policy.image_config import ImageQuery

Operation: TypeAlias = dict[str, Any]
"""One RFC 6902 operation, ready to be encoded."""

WARNING_LENGTH = 256
"""Characters: the API server may cut longer warnings (admission.k8s.io/v1 `response.warnings`)."""
_MOST_WARNINGS = 15
"""Of 256 characters: it takes 4,096 in all."""
_LONGEST_ANNOTATION = 10_240
"""Characters of an audit annotation: what the API server gives one of its own policies."""


_encode = msgspec.json.Encoder().encode


class Reason(StrEnum):
    """Why a remedy was or was not applied. Names are part of the contract; never rename one."""

    meaning: str
    """One sentence for the documentation and the page."""
    warns: bool
    """Whether a person should act on it: then `kubectl` prints it as a warning."""

    def __new__(cls, code: str, meaning: str, warns: bool = False) -> Reason:
        """A code with what there is to say about it."""
        reason = str.__new__(cls, code)
        reason._value_, reason.meaning, reason.warns = code, meaning, warns
        return reason

    __hash__ = str.__hash__  # Enum's is written in Python, and each review asks for several.

    APPLIED = "Applied", "The remedy is in the patch."
    WOULD_APPLY = (
        "WouldApply",
        "A policy with `action: Audit` would have applied the remedy; nothing was changed.",
    )
    ALREADY_SETTLED = "AlreadySettled", "The pod or container already carries the remedy."

    NO_POLICY = "NoPolicy", "No policy covers the pod."
    POLICY_NOT_FOUND = (
        "PolicyNotFound",
        "The namespace's label `podsettle.dev/policy` names a policy that does not exist.",
        True,
    )
    NAMESPACE_DISABLED = (
        "NamespaceDisabled",
        'The namespace is labelled `podsettle.dev/enabled: "false"`.',
    )
    NAMESPACE_UNKNOWN = (
        "NamespaceUnknown",
        "podsettle does not know the namespace, so it cannot tell which policies cover it.",
        True,
    )
    PROTECTED_NAMESPACE = (
        "ProtectedNamespace",
        "`kube-*`, `openshift-*` and podsettle's own namespace are left alone unless a policy's "
        "`namespaceSelector` names one by `kubernetes.io/metadata.name`.",
    )
    NOT_POD_CREATE = "NotPodCreate", "Only the creation of pods is covered."
    POD_OPTED_OUT = "PodOptedOut", "The pod's annotation `podsettle.dev/skip` says so."
    UNKNOWN_REMEDY = (
        "UnknownRemedy",
        "The pod's annotation `podsettle.dev/skip` names a remedy that does not exist.",
        True,
    )
    ANNOTATIONS_FULL = (
        "AnnotationsFull",
        "The pod's annotations leave no room for podsettle's: the API server takes 256 KiB.",
        True,
    )
    MIRROR_POD = (
        "MirrorPod",
        "A mirror pod: the kubelet would delete it if its spec were changed.",
    )
    WINDOWS_POD = "WindowsPod", "The pod runs on Windows."
    POD_TOO_LARGE = (
        "PodTooLarge",
        "The pod has more containers than podsettle looks at, 500: it would keep others waiting.",
        True,
    )

    NO_COMMAND = (
        "NoCommand",
        "The container has no `command`: what to wrap is in the image, which the pod does not "
        "hold. Set `command` to the image's entrypoint.",
        True,
    )
    IMAGE_CONFIG_UNAVAILABLE = (
        "ImageConfigUnavailable",
        "The container has no `command`, and what its image starts could not be learned in time "
        "from its registry. Set `command` to the image's entrypoint.",
        True,
    )
    NO_SHELL = (
        "NoShell",
        "`delivery: Shell` and the command does not start with a known shell.",
        True,
    )
    INTERACTIVE = (
        "Interactive",
        "`delivery: Shell` and the container takes stdin or a tty, which the shell wrapper "
        "cannot pass on.",
        True,
    )
    NATIVE_SIDECAR = (
        "NativeSidecar",
        "A sidecar: an init container with `restartPolicy: Always`, or a Tekton `sidecar-*`.",
    )
    MESH_INIT_CONTAINER = (
        "MeshInitContainer",
        "An init container of a service mesh; never wrapped.",
    )
    LONG_RUNNING = (
        "LongRunning",
        "A regular container that is not meant to finish: it has probes, or the pod's "
        "`restartPolicy` is Always.",
    )
    NAME_CONFLICT = (
        "NameConflict",
        "The pod already uses the name `podsettle-linger` or `podsettle-kubelet-gate`, or the path "
        "`/podsettle`, for something else.",
        True,
    )
    HELPER_IMAGE_MISSING = (
        "HelperImageMissing",
        "The remedy needs the helper and podsettle was started without `--linger-image` (the "
        "chart value `lingerImage`).",
        True,
    )
    NOT_NEEDED = "NotNeeded", "No node that the pod could land on has the defect."
    SERVER_TOO_OLD = (
        "ServerTooOld",
        "The API server or a node does not support what the remedy needs.",
        True,
    )
    RESTART_POLICY_PRESET = (
        "RestartPolicyPreset",
        "The init container already sets a `restartPolicy` of its own, which is never replaced.",
    )
    SYSTEM_POD = (
        "SystemPod",
        "A pod that its node may need early: it tolerates every taint, belongs to a DaemonSet, is "
        "`system-node-critical`, or uses the host's network in a `kube-*` or `openshift-*` "
        "namespace.",
    )
    MESH_TRAFFIC = (
        "MeshTraffic",
        "A service mesh's CNI plugin takes the pod's connections before its proxy runs, so an init "
        "container reaches nothing.",
        True,
    )

    RUNTIME_CLASS_MISSING = (
        "RuntimeClassMissing",
        "The RuntimeClass does not exist; the API server would refuse the pod.",
        True,
    )
    RUNTIME_CLASS_CONFLICT = (
        "RuntimeClassConflict",
        "The RuntimeClass disagrees with the pod's overhead, nodeSelector or node, or with another "
        "remedy's class; the pod would be refused or never run.",
        True,
    )
    RUNTIME_CLASS_PRESET = (
        "RuntimeClassPreset",
        "The pod already names another RuntimeClass, which is never replaced.",
        True,
    )
    NO_PERSISTENT_VOLUME = (
        "NoPersistentVolume",
        "The pod mounts no persistent volume and the policy covers only those that do.",
    )
    ANNOTATION_PRESET = (
        "AnnotationPreset",
        "The pod already sets the annotation to another value.",
    )
    SELINUX_CHANGE_POLICY_PRESET = (
        "SELinuxChangePolicyPreset",
        "The pod already sets `seLinuxChangePolicy` to another value, which is never replaced.",
    )
    UNSTABLE_SELINUX_LEVEL = (
        "UnstableSELinuxLevel",
        "Applied, but without effect until the pod or its namespace fixes "
        "`seLinuxOptions.level`: a level that changes with each start relabels each time.",
        True,
    )

    MALFORMED_POD = (
        "MalformedPod",
        "A field of the pod has a type that Kubernetes would not send.",
    )
    UNSUPPORTED_REVIEW = (
        "UnsupportedReview",
        "Not an AdmissionReview of `admission.k8s.io/v1`.",
        True,
    )
    DEADLINE_EXCEEDED = (
        "DeadlineExceeded",
        "The review had not come to its end when podsettle had to answer.",
        True,
    )
    OVERLOADED = (
        "Overloaded",
        "podsettle has more reviews to answer than it can in time, and lets some pass unread.",
        True,
    )
    INTERNAL_ERROR = (
        "InternalError",
        "A defect of podsettle's own. The pod was admitted unchanged; please report it.",
        True,
    )


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


Tally: TypeAlias = tuple[tuple[tuple[str, Reason], int], ...]
"""Remedies and reasons, each with a number."""


class _Response(msgspec.Struct, rename="camel", omit_defaults=True):
    """What an AdmissionResponse says beside its uid and that the pod is allowed."""

    patch_type: str = ""
    patch: bytes = b""
    """Encoded as base64, as the API wants it."""
    warnings: list[str] = []
    audit_annotations: dict[str, str] = {}


class Decision(msgspec.Struct, frozen=True, dict=True):
    """What is answered: always allowed; `operations` is empty where nothing changes.

    One decision may answer many reviews: what is made of it is made once.
    """

    outcomes: tuple[Outcome, ...] = ()
    operations: tuple[Operation, ...] = ()
    policies: tuple[str, ...] = ()
    lacking: tuple[ImageQuery, ...] = ()
    """Images that have to be looked up for the decision to be better."""

    @cached_property
    def warnings(self) -> list[str]:
        """For `kubectl` to print: what a person should act on, one line per remedy and reason."""
        groups: dict[tuple[str, Reason, str], list[str]] = {}
        for outcome in self.outcomes:
            if outcome.reason.warns:
                key = (outcome.remedy, outcome.reason, outcome.message)
                groups.setdefault(key, []).append(outcome.container)
        warnings = [_warning(*key, names) for key, names in islice(groups.items(), _MOST_WARNINGS)]
        if len(groups) > _MOST_WARNINGS:
            warnings.append(f"podsettle: {len(groups) - _MOST_WARNINGS} more")
        return warnings

    @cached_property
    def audit_annotations(self) -> dict[str, str]:
        """For the audit log: what was applied and what was not, each with its reason."""
        applied: list[str] = []
        skipped: list[str] = []
        for outcome in self.outcomes:
            (applied if outcome.changed else skipped).append(_audit(outcome))
        annotations = {}
        if applied:
            annotations["applied"] = " ".join(applied)[:_LONGEST_ANNOTATION]
        if skipped:
            annotations["skipped"] = " ".join(skipped)[:_LONGEST_ANNOTATION]
        return annotations

    @cached_property
    def summary(self) -> str:
        """For the log: the audit annotations in one line."""
        return "; ".join(f"{key}: {text}" for key, text in self.audit_annotations.items())

    @cached_property
    def tally(self) -> Tally:
        """For the metrics: how often each reason is given, by remedy."""
        return tuple(Counter((o.remedy, o.reason) for o in self.outcomes).items())

    @cached_property
    def lacks_namespace(self) -> bool:
        """Whether the pod's namespace is not known, so that nothing could be decided."""
        return any(outcome.reason is Reason.NAMESPACE_UNKNOWN for outcome in self.outcomes)

    @cached_property
    def members(self) -> bytes:
        """It as members of an AdmissionResponse, after others: JSON that begins with a comma."""
        said = _Response(warnings=self.warnings, audit_annotations=self.audit_annotations)
        if self.operations:
            said.patch_type = "JSONPatch"
            said.patch = _encode(self.operations)
        members = _encode(said)[1:-1]
        return b"," + members if members else b""


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
