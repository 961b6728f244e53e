"""What the developer of a pod can do about each reason.

`Reason.meaning` says what a reason means, and this module says what follows from it. The page
`docs/why-was-my-pod-changed.md` and `podsettle explain CODE` show both.
"""

from __future__ import annotations

from collections.abc import Mapping

from webhook.core.reasons import Reason
from webhook.core.remedies import REMEDIES

_NOTHING = "Nothing."
_TRY_AGAIN = "Create the pod again. If it happens often, tell the operator of podsettle."
_TELL_OPERATOR = "Tell the operator of podsettle."

ADVICE: Mapping[Reason, str] = {
    Reason.APPLIED: "Nothing. To do without the remedy, name it in the annotation "
    "`podsettle.dev/skip` of the pod template.",
    Reason.WOULD_APPLY: "Nothing. The operator tries the policy out before it changes pods.",
    Reason.ALREADY_SETTLED: _NOTHING,
    Reason.NO_POLICY: "Nothing, if your pods work. If they have a problem that podsettle cures, "
    "ask the operator for a policy that covers them. A namespace can also opt in to a policy by "
    "the label `podsettle.dev/policy: NAME`.",
    Reason.POLICY_NOT_FOUND: "Correct the label of the namespace, or ask the operator for the "
    "policy.",
    Reason.NAMESPACE_DISABLED: "Remove the label if you want podsettle to change pods in the "
    "namespace.",
    Reason.NAMESPACE_UNKNOWN: "If the namespace is new, create the pod again. Otherwise tell the "
    "operator of podsettle.",
    Reason.PROTECTED_NAMESPACE: _NOTHING,
    Reason.NOT_POD_CREATE: _NOTHING,
    Reason.POD_OPTED_OUT: "Remove the annotation from the pod template if you want the remedy.",
    Reason.UNKNOWN_REMEDY: "Correct the annotation. It takes `true`, or names of these remedies: "
    f"{', '.join(f'`{name}`' for name in REMEDIES)}.",
    Reason.ANNOTATION_IGNORED: "Correct the annotation. It takes 1 to 4 targets, separated by "
    "commas: HOST:PORT, a URL that begins with `http://`, or a DNS name. Or ask the operator to "
    "set `podTargets` in the policy.",
    Reason.ANNOTATIONS_FULL: "Remove annotations from the pod template, or make them shorter.",
    Reason.MIRROR_POD: _NOTHING,
    Reason.WINDOWS_POD: "Nothing. podsettle's remedies are for Linux.",
    Reason.POD_TOO_LARGE: "Split the pod, if it needs the remedy.",
    Reason.NO_COMMAND: "Write the `ENTRYPOINT` of the image into the container's `command`, and "
    "its `CMD` into `args`. An operator can also let podsettle look entrypoints up, by "
    "`imageConfig` in the policy.",
    Reason.IMAGE_CONFIG_UNAVAILABLE: "Create the pod again, because podsettle then often knows the "
    "image. Or write the entrypoint of the image into the container's `command`.",
    Reason.SHORT_IMAGE_NAME: "Write the registry into the name of the image, such as "
    "`docker.io/library/busybox`. Or write the entrypoint of the image into the container's "
    "`command`.",
    Reason.NO_SHELL: "Ask the operator for a policy with `delivery: Auto`, or start the command "
    "with a shell, such as `sh`.",
    Reason.INTERACTIVE: "Ask the operator for a policy with `delivery: Auto`, or remove `stdin` "
    "and `tty` from the container.",
    Reason.TRAPS_INTERRUPT: "Ask the operator for a policy with `delivery: Auto`, or start the "
    "command with `bash`, in which the trap works.",
    Reason.FILE_CAPABILITIES: "If the program needs no capability, set `capabilities: {drop: "
    "[ALL]}` in the container's `securityContext`. If the container may run as root, set "
    "`runAsUser: 0`. A command that starts with a shell, such as `sh`, gets the remedy too.",
    Reason.PROCESS_ONE: _NOTHING,
    Reason.NATIVE_SIDECAR: _NOTHING,
    Reason.MESH_INIT_CONTAINER: _NOTHING,
    Reason.LONG_RUNNING: "Nothing. The remedy is for containers that end quickly.",
    Reason.NAME_CONFLICT: "Rename your container or volume, or mount it at another path. podsettle "
    "needs these names for its own.",
    Reason.HELPER_IMAGE_MISSING: "Tell the operator to set the chart value `lingerImage`.",
    Reason.HELPER_TOO_OLD: "Tell the operator to build the helper of podsettle's version and to "
    "name it in the chart value `lingerImage`, or to give its version in `lingerVersion`.",
    Reason.NOT_NEEDED: _NOTHING,
    Reason.NO_CONTAINER_SELECTED: "Nothing, if your containers work. Otherwise ask the operator to "
    "name them in the policy. `postInitSleep` selects all init containers, and no regular "
    "container, unless the policy lists others.",
    Reason.SHADOWED: "Nothing. If the pod needs the settings of this policy, ask the operator to "
    "raise its `priority`.",
    Reason.SERVER_TOO_OLD: "Nothing. The remedy begins to work after an upgrade of the cluster.",
    Reason.RESTART_POLICY_PRESET: "Remove the container's `restartPolicy` if you want the remedy "
    "instead.",
    Reason.SYSTEM_POD: _NOTHING,
    Reason.MESH_TRAFFIC: "For `kubeletGate`, let the mesh run its proxy as a native sidecar. "
    "Otherwise do without the remedy: name it in the annotation `podsettle.dev/skip`.",
    Reason.RUNTIME_CLASS_MISSING: "Tell the operator to create the RuntimeClass, or to correct its "
    "name in the policy.",
    Reason.RUNTIME_CLASS_UNHANDLED: "Tell the operator to configure the handler on the nodes. "
    "`podsettle node-config` prints the configuration.",
    Reason.RUNTIME_CLASS_CONFLICT: "Remove the field that the message names from the pod template, "
    "or do without the remedy: name it in the annotation `podsettle.dev/skip`.",
    Reason.RUNTIME_CLASS_PRESET: "Remove `runtimeClassName` from the pod template if you do not "
    "need that class. Otherwise name the remedy in the annotation `podsettle.dev/skip`.",
    Reason.MEMORY_BELOW_MINIMUM: "Raise the memory limit that the message names. If the nodes' "
    "handler accepts less, tell the operator to write it into the annotation "
    "`podsettle.dev/min-memory` of the RuntimeClass.",
    Reason.ANNOTATION_NOT_ALLOWED: "Remove the annotation from the pod template if you do not need "
    "it. If the nodes' handler allows it, tell the operator to name it in the annotation "
    "`podsettle.dev/allowed-annotations` of the RuntimeClass.",
    Reason.OTHER_WORKLOAD: _NOTHING,
    Reason.NO_PERSISTENT_VOLUME: _NOTHING,
    Reason.ANNOTATION_PRESET: "Remove the annotation from the pod template if you want the remedy.",
    Reason.NOT_APPLICABLE: _NOTHING,
    Reason.FIELD_PRESET: "Remove the field from the pod template if you want the remedy.",
    Reason.SELINUX_CHANGE_POLICY_PRESET: "Remove `seLinuxChangePolicy` from the pod template if "
    "you want the remedy.",
    Reason.UNSTABLE_SELINUX_LEVEL: "Set `securityContext.seLinuxOptions.level` in the pod "
    "template.",
    Reason.MALFORMED_POD: "Nothing. The API server reports the error in the pod.",
    Reason.UNSUPPORTED_REVIEW: _TELL_OPERATOR,
    Reason.DEADLINE_EXCEEDED: _TRY_AGAIN,
    Reason.OVERLOADED: _TRY_AGAIN,
    Reason.INTERNAL_ERROR: "Tell the operator of podsettle. The log of podsettle has the cause.",
}
"""For each reason, what the developer of the pod can do, in sentences."""
