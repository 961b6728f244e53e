"""The target of `podsettle explain`, and what it means if it is no object.

The page `docs/reasons.md` and `podsettle explain CODE` show the advice on a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import NamedTuple, TypeAlias, get_args

from webhook.core.constants import OBJECT_NAME
from webhook.core.defects.catalogue import DEFECTS
from webhook.core.reasons import Reason
from webhook.core.remedies import REMEDIES
from webhook.core.remedies.shell_wrapper import COMMENTED_SCRIPT, SCRIPT
from webhook.core.types import Json
from webhook.inspect.cluster_flags import NO_FLAGS, ClusterFlags, kubectl, podsettle
from webhook.inspect.scan import unsettled
from webhook.inspect.scan.symptoms import SYMPTOMS
from webhook.inspect.scan.symptoms.base import page_of

WRAPPER = "wrapper"
"""The target that stands for the script in front of a container's command."""
KINDS = {
    "pod": ("Pod", ""),
    "deploy": ("Deployment", "apps"),
    "sts": ("StatefulSet", "apps"),
    "ds": ("DaemonSet", "apps"),
    "job": ("Job", "batch"),
    "cronjob": ("CronJob", "batch"),
}
"""The kinds and API groups of objects, by their names in messages, which kubectl takes."""
_TITLES = {"po": "pod", "cj": "cronjob"} | {
    name: title
    for title, (kind, group) in KINDS.items()
    for long in (kind.lower(), f"{kind.lower()}s")
    for name in (title, long, f"{long}.{group}", f"{long}.v1.{group}")
}
"""The names in messages, by the names that kubectl accepts."""

_SKIP = "name it in the annotation `podsettle.dev/skip` of the pod template"
_AUTO = "Ask the operator for a policy with `delivery: Auto`, or"
_ENTRYPOINT = "write the image's `ENTRYPOINT` into `command`, and its `CMD` into `args`."
_TRY_AGAIN = "Create the pod again. If it happens often, tell the operator of podsettle."

ADVICE: Mapping[Reason, str] = {
    Reason.APPLIED: f"Nothing. To do without the remedy, {_SKIP}.",
    Reason.WOULD_APPLY: "Nothing. The operator tries the policy out before it changes pods.",
    Reason.NO_POLICY: "Nothing, if your pods work. If they have a problem that podsettle cures, "
    "ask the operator for a policy that covers them. A namespace can also opt in to a policy by "
    "the label `podsettle.dev/policy: NAME`.",
    Reason.POLICY_NOT_FOUND: "Correct the namespace's label, or ask the operator for the policy.",
    Reason.NAMESPACE_DISABLED: "Remove the label if you want podsettle to change pods there.",
    Reason.NAMESPACE_UNKNOWN: "If the namespace is new, create the pod again. Otherwise tell the "
    "operator of podsettle.",
    Reason.POD_OPTED_OUT: "Remove the annotation from the pod template if you want the remedy.",
    Reason.UNKNOWN_REMEDY: "Correct the annotation. It takes `true`, or names of these remedies: "
    f"{', '.join(f'`{name}`' for name in REMEDIES)}.",
    Reason.ANNOTATION_IGNORED: "Correct the annotation. It takes 1 to 4 targets, separated by "
    "commas: HOST:PORT, a URL that begins with `http://`, or a DNS name. Or ask the operator to "
    "set `podTargets` in the policy.",
    Reason.ANNOTATIONS_FULL: "Remove annotations from the pod template, or make them shorter.",
    Reason.WINDOWS_POD: "Nothing. podsettle's remedies are for Linux.",
    Reason.POD_TOO_LARGE: "Split the pod, if it needs the remedy.",
    Reason.NO_COMMAND: f"In the container, {_ENTRYPOINT} An operator can also let podsettle look "
    "entrypoints up, by `imageConfig` in the policy.",
    Reason.IMAGE_CONFIG_UNAVAILABLE: "Create the pod again: podsettle then often knows the image. "
    f"Or {_ENTRYPOINT}",
    Reason.SHORT_IMAGE_NAME: "Write the registry into the name of the image, such as "
    f"`docker.io/library/busybox`. Or {_ENTRYPOINT}",
    Reason.NO_SHELL: f"{_AUTO} start the command with a shell, such as `sh`.",
    Reason.INTERACTIVE: f"{_AUTO} remove `stdin` and `tty` from the container.",
    Reason.TRAPS_INTERRUPT: f"{_AUTO} start the command with `bash`, in which the trap works.",
    Reason.FILE_CAPABILITIES: "If the program needs no capability, set `capabilities: {drop: "
    "[ALL]}` in the container's `securityContext`. If the container may run as root, set "
    "`runAsUser: 0`. A command that starts with a shell, such as `sh`, gets the remedy too.",
    Reason.LONG_RUNNING: "Nothing. The remedy is for containers that end quickly.",
    Reason.NAME_CONFLICT: "Rename your container or volume, or mount it at another path. podsettle "
    "needs these names for its own.",
    Reason.HELPER_IMAGE_MISSING: "Tell the operator to set the chart value `lingerImage`.",
    Reason.HELPER_TOO_OLD: "Tell the operator to build the helper of podsettle's version and to "
    "name it in the chart value `lingerImage`, or to give its version in `lingerVersion`.",
    Reason.NO_CONTAINER_SELECTED: "Nothing, if your containers work. Otherwise ask the operator to "
    "name them in the policy. Without names, `postInitSleep` selects all init containers only.",
    Reason.SHADOWED: "Nothing. If the pod needs the settings of this policy, ask the operator to "
    "raise its `priority`.",
    Reason.SERVER_TOO_OLD: "Nothing. The remedy begins to work after an upgrade of the cluster.",
    Reason.RESTART_POLICY_PRESET: "Remove the container's `restartPolicy` if you want the remedy.",
    Reason.MESH_TRAFFIC: "For `kubeletGate`, let the mesh run its proxy as a native sidecar. "
    "Behind ztunnel, ask the operator for `http` or `dns` targets. "
    f"Otherwise do without the remedy: {_SKIP}.",
    Reason.RUNTIME_CLASS_MISSING: "Tell the operator to create the RuntimeClass, or to correct its "
    "name in the policy.",
    Reason.RUNTIME_CLASS_UNHANDLED: "Tell the operator to configure the handler on the nodes. "
    "`podsettle node-config` prints the configuration.",
    Reason.RUNTIME_CLASS_CONFLICT: "Remove the field that the message names from the pod template, "
    f"or do without the remedy: {_SKIP}.",
    Reason.RUNTIME_CLASS_PRESET: "Remove `runtimeClassName` from the pod template if you do not "
    f"need that class. Otherwise do without the remedy: {_SKIP}.",
    Reason.MEMORY_BELOW_MINIMUM: "Raise the memory limit that the message names. If the nodes' "
    "handler accepts less, tell the operator to write it into the annotation "
    "`podsettle.dev/min-memory` of the RuntimeClass.",
    Reason.ANNOTATION_NOT_ALLOWED: "Remove the annotation from the pod template if you do not need "
    "it. If the nodes' handler allows it, tell the operator to name it in the annotation "
    "`podsettle.dev/allowed-annotations` of the RuntimeClass.",
    Reason.ANNOTATION_PRESET: "Remove the annotation from the pod template if you want the remedy.",
    Reason.FIELD_PRESET: "Remove the field from the pod template if you want the remedy.",
    Reason.SELINUX_CHANGE_POLICY_PRESET: "Remove the field if you want the remedy.",
    Reason.UNSTABLE_SELINUX_LEVEL: "Set `securityContext.seLinuxOptions.level` in the template.",
    Reason.MALFORMED_POD: "Nothing. The API server reports the error in the pod.",
    Reason.UNSUPPORTED_REVIEW: "Tell the operator of podsettle.",
    Reason.DEADLINE_EXCEEDED: _TRY_AGAIN,
    Reason.OVERLOADED: _TRY_AGAIN,
    Reason.INTERNAL_ERROR: "Tell the operator of podsettle. The log of podsettle has the cause.",
}
"""What the developer of the pod can do, for each reason about which something can be done."""


class TargetError(ValueError):
    """Raised for a text that names no target."""


class ObjectTarget(NamedTuple):
    """A pod or a workload, by its name."""

    kind: str
    group: str
    name: str
    title: str
    """The target in messages, such as `deploy/web`."""


Target: TypeAlias = ObjectTarget | Reason | str
"""A text is the name of a remedy, the id of a defect or a symptom, or WRAPPER."""
_IDS = (*(each.id for each in DEFECTS), *(each.id for each in SYMPTOMS), unsettled.ID)
WORDS: dict[str, Reason | str] = {
    each.lower(): each for each in (*Reason, *REMEDIES, *_IDS, WRAPPER)
}
"""The targets that are no objects, by their names in lower case."""


def parse_target(text: str, flags: ClusterFlags = NO_FLAGS) -> Target:
    """Return the target that a text names. Raise TargetError if it names none.

    `flags` are those of the printed command.

    All but objects may be written in any case. A pod with such a name needs `pod/`.
    """
    kind_name, slash, name = text.partition("/")
    if not slash:
        if (word := WORDS.get(text.lower())) is not None:
            return word
        if text != text.lower():  # The name of an object has no capital letter.
            close = [WORDS[word] for word in get_close_matches(text[:100].lower(), WORDS)]
            advice = f"did you mean {' or '.join(close)}?" if close else "see docs/reasons.md"
            raise TargetError(f"{text!r} is no reason code, remedy or defect; {advice}")
        kind_name, name = "pod", text
    title = _TITLES.get(kind_name.lower())
    if title is None:
        command = kubectl("get", "KIND", "NAME", "-o", "yaml") + podsettle("preview", "-")
        raise TargetError(
            f"{kind_name!r} is no kind that explain knows; it takes "
            f"{', '.join(f'{each}/NAME' for each in KINDS)}, a reason code, a remedy or a defect. "
            f"To see the decision on the pods of another kind, preview the object: "
            f"{flags.command(command)}"
        )
    if not OBJECT_NAME.fullmatch(name):
        raise TargetError(f"{name!r} is not the name of an object")
    return ObjectTarget(*KINDS[title], name, f"{title}/{name}")


def explain_word(word: Reason | str) -> Json:
    """Return what a reason code, a remedy, a defect, a symptom or WRAPPER means, by WORD_TITLES.

    Of the wrapper it has the script as it stands in pods, and with comments.
    """
    if isinstance(word, Reason):
        return {
            "reason": word,
            "meaning": word.meaning,
            "warns": word.warns,
            "remedies": [name for name, remedy in REMEDIES.items() if word in remedy.reasons],
            "advice": ADVICE.get(word, "Nothing."),
            "page": f"docs/reasons.md#{word.lower()}",
        }
    if remedy := REMEDIES.get(word):
        # A Literal has values in place of fields.
        fields = getattr(remedy.settings, "model_fields", {})
        return {
            "remedy": word,
            "description": remedy.description,
            "defects": [
                {"id": each.id, "title": each.title, "advice": each.advice}
                for each in DEFECTS
                if word in each.remedies
            ],
            "nodeConfiguration": remedy.node_configuration,
            "settings": [
                {"name": field.alias or name, "description": field.description or ""}
                for name, field in fields.items()
            ],
            "values": list(map(str, get_args(remedy.settings))),
            "reasons": sorted(remedy.reasons),
        }
    if word == WRAPPER:
        return {
            "wrapper": WRAPPER,
            "description": "postInitSleep puts a script in front of a command that starts with a "
            "shell.",
            "script": SCRIPT,
            "commented": COMMENTED_SCRIPT,
            "page": "docs/exit-255.md",
        }
    for defect in (each for each in DEFECTS if each.id == word):
        return {
            "symptom": word,
            "title": defect.title,
            "cause": defect.cause,
            "messages": [f"In {each.where}: {each.message}" for each in defect.symptom],
            "curedBy": list(defect.remedies),
            "advice": defect.advice,
            "page": page_of(defect),
        }
    symptom = next(each for each in (unsettled.SYMPTOM, *SYMPTOMS) if each.id == word)
    advice = {"advice": unsettled.ADVICE} if word == unsettled.ID else {}
    return {"symptom": word, "title": symptom.title, **advice, "page": symptom.page}
