"""The reasons for which a remedy was or was not applied.

The reasons are a closed set of codes. Warnings, audit annotations, metric labels, logs, `/preview`,
the page and the command line all use the same codes.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Reason(StrEnum):
    """A reason for which a remedy was or was not applied.

    Never rename a reason, because users rely on the codes.
    """

    meaning: str
    """The explanation for the documentation, the page and warnings."""
    warns: bool
    """Whether a person should act on the reason. If so, `kubectl` prints a warning with it."""

    def __new__(cls, code: str, meaning: str, warns: bool = False) -> Reason:
        """Create a reason from its code, its meaning and whether it warns."""
        reason = str.__new__(cls, code)
        reason._value_, reason.meaning, reason.warns = code, meaning, warns
        return reason

    __hash__ = str.__hash__  # `Enum.__hash__` is slower, and each review hashes several.

    @classmethod
    def of(cls, code: str) -> Reason | None:
        """Return the reason with a code, in any case. Return None for any other text."""
        wanted = code.lower()
        return next((reason for reason in cls if reason.lower() == wanted), None)

    APPLIED = "Applied", "The remedy is in the patch."
    WOULD_APPLY = (
        "WouldApply",
        "A policy with `action: Audit` would have applied the remedy. Nothing was changed.",
    )
    ALREADY_SETTLED = "AlreadySettled", "The pod or container already has the remedy."

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
        "podsettle does not know the namespace, so it cannot find out which policies cover it.",
        True,
    )
    PROTECTED_NAMESPACE = (
        "ProtectedNamespace",
        "The namespace is podsettle's own, or a `kube-*` or `openshift-*` namespace that no "
        "policy's `namespaceSelector` names by `kubernetes.io/metadata.name`.",
    )
    NOT_POD_CREATE = "NotPodCreate", "The request is not the creation of a pod."
    POD_OPTED_OUT = (
        "PodOptedOut",
        "The pod's annotation `podsettle.dev/skip` excludes this remedy, or all remedies.",
    )
    UNKNOWN_REMEDY = (
        "UnknownRemedy",
        "The pod's annotation `podsettle.dev/skip` names a remedy that does not exist.",
        True,
    )
    ANNOTATIONS_FULL = (
        "AnnotationsFull",
        "The pod's annotations leave no space for podsettle's. The API server accepts 256 KiB.",
        True,
    )
    ANNOTATION_IGNORED = (
        "AnnotationIgnored",
        "The pod's annotation `podsettle.dev/start-gate` does not count: it is not a list of 1 to "
        "4 targets, or the policy does not set `podTargets`. The targets of the policy count.",
        True,
    )
    MIRROR_POD = (
        "MirrorPod",
        "The pod is a mirror pod. The kubelet would delete it if its spec were changed.",
    )
    WINDOWS_POD = "WindowsPod", "The pod runs on Windows."
    POD_TOO_LARGE = (
        "PodTooLarge",
        "The pod has more than 500 containers or more than 50,000 values, so that to evaluate it "
        "would delay other reviews. Or it would have more than 1.25 MiB with the patch, so that "
        "etcd could refuse it.",
        True,
    )

    NO_COMMAND = (
        "NoCommand",
        "The container has no `command`, so podsettle does not know which program it starts. Set "
        "`command` to the image's entrypoint.",
        True,
    )
    IMAGE_CONFIG_UNAVAILABLE = (
        "ImageConfigUnavailable",
        "The container has no `command`, and podsettle could not look up the image's entrypoint "
        "in time. Set `command` to the image's entrypoint.",
        True,
    )
    SHORT_IMAGE_NAME = (
        "ShortImageName",
        "The container has no `command`, and the name of its image has no registry. A node with "
        "CRI-O chooses the registry by its own configuration, so podsettle does not know which "
        "image starts. Write the registry into the name, or set `command`.",
        True,
    )
    NO_SHELL = (
        "NoShell",
        "`delivery: Shell` is set, but the command does not start with a known shell.",
        True,
    )
    INTERACTIVE = (
        "Interactive",
        "`delivery: Shell` is set, but the container uses stdin or a tty, which the shell wrapper "
        "cannot pass on.",
        True,
    )
    TRAPS_INTERRUPT = (
        "TrapsInterrupt",
        "`delivery: Shell` is set, but the command looks like a shell script with a `trap` on INT "
        "or QUIT. The shell wrapper would start it with both signals ignored, so that the trap has "
        "no effect.",
        True,
    )
    FILE_CAPABILITIES = (
        "FileCapabilities",
        "The container has capabilities, may run as a user other than root, and sets "
        "`allowPrivilegeEscalation: false`. Behind the helper, a program would lose the "
        "capabilities of its file, and could not bind port 80, for example.",
        True,
    )
    PROCESS_ONE = (
        "ProcessOne",
        "The container starts a program that works only as process 1, such as systemd. Or the pod "
        "sets `shareProcessNamespace`, and another container may wait for the first process. The "
        "remedy's wrapper would take its place.",
    )
    NATIVE_SIDECAR = (
        "NativeSidecar",
        "The container is a sidecar: an init container with `restartPolicy: Always`, or a "
        "container `sidecar-*` of Tekton.",
    )
    MESH_INIT_CONTAINER = (
        "MeshInitContainer",
        "The init container belongs to a service mesh, or could do the work of one: it adds the "
        "capability `NET_ADMIN` or `NET_RAW`, or all. podsettle never wraps it.",
    )
    LONG_RUNNING = (
        "LongRunning",
        "The container is not meant to finish: it has probes, or its `restartPolicy`, else the "
        "pod's, is Always.",
    )
    NAME_CONFLICT = (
        "NameConflict",
        "The pod already uses one of the names `podsettle-linger`, `podsettle-kubelet-gate` and "
        "`podsettle-start-gate`, or the path `/podsettle`, for something else.",
        True,
    )
    HELPER_IMAGE_MISSING = (
        "HelperImageMissing",
        "The remedy needs the helper, but podsettle was started without `--linger-image` (the "
        "chart value `lingerImage`).",
        True,
    )
    HELPER_TOO_OLD = (
        "HelperTooOld",
        "The remedy needs a newer helper than the image of the chart value `lingerImage` has, or "
        "nothing says which version is in it.",
        True,
    )
    NOT_NEEDED = "NotNeeded", "No node that the pod could land on has the defect."
    NO_CONTAINER_SELECTED = (
        "NoContainerSelected",
        "The policy covers the pod, but the remedy selects none of the pod's containers by their "
        "names.",
    )
    SHADOWED = "Shadowed", "Another policy that covers the pod sets the remedy first."
    SERVER_TOO_OLD = (
        "ServerTooOld",
        "The API server or a node does not support what the remedy needs.",
        True,
    )
    RESTART_POLICY_PRESET = (
        "RestartPolicyPreset",
        "The init container already sets a `restartPolicy`, which podsettle never replaces.",
    )
    SYSTEM_POD = (
        "SystemPod",
        "A new node may need the pod before what a gate waits for is there: it tolerates every "
        "taint, belongs to a DaemonSet, is `system-node-critical`, or uses the host's network in a "
        "`kube-*` or `openshift-*` namespace.",
    )
    MESH_TRAFFIC = (
        "MeshTraffic",
        "The CNI plugin of a service mesh redirects the pod's connections to the mesh's proxy, so "
        "a gate cannot see what it waits for.",
        True,
    )

    RUNTIME_CLASS_MISSING = (
        "RuntimeClassMissing",
        "The RuntimeClass does not exist. The API server refuses a pod that names a missing one.",
        True,
    )
    RUNTIME_CLASS_UNHANDLED = (
        "RuntimeClassUnhandled",
        "None of the nodes that the pod could land on lists the handler of the RuntimeClass in "
        "`status.runtimeHandlers`. A pod with the class would never start there.",
        True,
    )
    RUNTIME_CLASS_CONFLICT = (
        "RuntimeClassConflict",
        "The RuntimeClass conflicts with the pod's overhead, nodeSelector or node, or with "
        "another remedy's class. A pod that names it would be refused or would never run.",
        True,
    )
    RUNTIME_CLASS_PRESET = (
        "RuntimeClassPreset",
        "The pod already names another RuntimeClass, which podsettle never replaces.",
        True,
    )
    MEMORY_BELOW_MINIMUM = (
        "MemoryBelowMinimum",
        "A memory limit is below the smallest one that the RuntimeClass's handler accepts: the "
        "class's annotation `podsettle.dev/min-memory`, or 12Mi. CRI-O would refuse the container.",
        True,
    )
    ANNOTATION_NOT_ALLOWED = (
        "AnnotationNotAllowed",
        "The pod has an annotation for CRI-O that the RuntimeClass's annotation "
        "`podsettle.dev/allowed-annotations` does not name. CRI-O would drop it under the class.",
        True,
    )
    OTHER_WORKLOAD = (
        "OtherWorkload",
        "The pod activates another workload of CRI-O. CRI-O applies one workload to a pod, at "
        "random, so the pod could lose the settings of the other one.",
    )
    NO_PERSISTENT_VOLUME = (
        "NoPersistentVolume",
        "The pod mounts no writable persistent volume and the remedy is only for pods that do.",
    )
    ANNOTATION_PRESET = (
        "AnnotationPreset",
        "The pod already sets the annotation to another value.",
    )
    NOT_APPLICABLE = (
        "NotApplicable",
        "The pod lacks what the remedy needs, or a container of it needs what the remedy would "
        "change. The message says which.",
    )
    FIELD_PRESET = (
        "FieldPreset",
        "The pod already sets the field that the remedy would set, which podsettle never replaces.",
    )
    SELINUX_CHANGE_POLICY_PRESET = (
        "SELinuxChangePolicyPreset",
        "The pod already sets `seLinuxChangePolicy` to another value, which podsettle never "
        "replaces.",
    )
    UNSTABLE_SELINUX_LEVEL = (
        "UnstableSELinuxLevel",
        "Applied, but without effect until the pod or its namespace sets `seLinuxOptions.level`. "
        "Without a fixed level, volumes are relabelled at each start.",
        True,
    )

    MALFORMED_POD = (
        "MalformedPod",
        "A field of the pod has a type that Kubernetes would not send.",
    )
    UNSUPPORTED_REVIEW = (
        "UnsupportedReview",
        "The request is not an AdmissionReview of `admission.k8s.io/v1` in UTF-8, or it is too "
        "large.",
        True,
    )
    DEADLINE_EXCEEDED = (
        "DeadlineExceeded",
        "podsettle had to answer before it had received the whole review.",
        True,
    )
    OVERLOADED = (
        "Overloaded",
        "podsettle has more reviews than it can answer in time, and admits some pods without "
        "evaluating them.",
        True,
    )
    INTERNAL_ERROR = (
        "InternalError",
        "An internal error of podsettle. The pod was admitted unchanged. Please report it.",
        True,
    )


NO_DECISION = frozenset({Reason.INTERNAL_ERROR, Reason.MALFORMED_POD})
"""The reasons of a decision that was not made. It says nothing about what the policies want."""
NOT_EVALUATED = frozenset({Reason.NO_CONTAINER_SELECTED, Reason.SHADOWED})
"""The reasons of remedies about which a decision says nothing, because it had nothing to evaluate.

Previews and explanations give them to people (`policy_matches`). Audit annotations, metrics and
logs would otherwise have an entry for most pods of a cluster-wide policy."""


class Outcome(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A reason, together with the remedy, the policy and the container to which it applies.

    The function of a remedy leaves `remedy` and `policy` empty, and its caller sets them. Both stay
    empty if the reason applies to the whole pod. The caller also sets an `effect` that the function
    leaves empty (`Remedy.effect`).
    """

    reason: Reason
    remedy: str = ""
    policy: str = ""
    container: str = ""
    """Empty if the remedy does not work on containers."""
    changed: bool = False
    """Whether the patch contains an edit for this outcome."""
    message: str = ""
    """Details that the reason code alone does not give. Of a change, a phrase after `would be`."""
    effect: str = ""
    """What the remedy does to the pod or container, as a phrase after `is` or `are`.

    Empty for a remedy that has no effect there."""

    @property
    def sentence(self) -> str:
        """The explanation for warnings, logs and previews: the details, or else the meaning.

        It may contain texts of the pod."""
        return self.message or self.reason.meaning
