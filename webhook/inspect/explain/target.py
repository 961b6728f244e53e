"""The target of `podsettle explain`: a pod, a workload, a reason code, a remedy, or the wrapper."""

from __future__ import annotations

from difflib import get_close_matches
from typing import NamedTuple, TypeAlias

from webhook.cluster.rights import Right
from webhook.core.constants import OBJECT_NAME
from webhook.core.reasons import Reason
from webhook.core.remedies import REMEDIES
from webhook.inspect.cluster_flags import NO_FLAGS, ClusterFlags, kubectl, podsettle

WRAPPER = "wrapper"
"""The target that stands for the script in front of a container's command."""


class ObjectKind(NamedTuple):
    """A kind of object that can be explained."""

    kind: str
    group: str
    title: str
    """The name for messages, which is one that kubectl takes, such as `deploy`."""

    @property
    def api_version(self) -> str:
        """The `apiVersion` of objects."""
        return f"{self.group}/v1" if self.group else "v1"


POD, JOB = ObjectKind("Pod", "", "pod"), ObjectKind("Job", "batch", "job")
CRON_JOB = ObjectKind("CronJob", "batch", "cronjob")
KINDS = (
    POD,
    ObjectKind("Deployment", "apps", "deploy"),
    ObjectKind("StatefulSet", "apps", "sts"),
    ObjectKind("DaemonSet", "apps", "ds"),
    JOB,
    CRON_JOB,
)
_BY_NAME = {"po": POD, "cj": CRON_JOB} | {
    name: kind
    for kind in KINDS
    for long in (kind.kind.lower(), f"{kind.kind.lower()}s")
    for name in (kind.title, long, f"{long}.{kind.group}", f"{long}.v1.{kind.group}")
}
"""The kinds by the names that kubectl accepts for them."""


class TargetError(ValueError):
    """Raised for a text that names no target."""


class ObjectTarget(NamedTuple):
    """A pod or a workload, by its name."""

    kind: ObjectKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.title}/{self.name}"

    def right(self, namespace: str | None) -> Right:
        """Return the right to get the object, or to list those of all namespaces."""
        verb, name = ("get", self.name) if namespace else ("list", None)
        return Right(verb, self.kind.group, f"{self.kind.kind.lower()}s", namespace, name)


Target: TypeAlias = ObjectTarget | Reason | str
"""A text is the name of a remedy, or WRAPPER."""
WORDS: dict[str, Reason | str] = {each.lower(): each for each in (*Reason, *REMEDIES, WRAPPER)}
"""The targets that are no objects, by their names in lower case."""


def parse_target(text: str, flags: ClusterFlags = NO_FLAGS) -> Target:
    """Return the target that a text names. Raise TargetError if it names none.

    `flags` are those of the printed command.

    A reason code or a remedy may be written in any case. A pod with such a name needs `pod/`.
    """
    kind_name, slash, name = text.partition("/")
    if not slash:
        if (word := WORDS.get(text.lower())) is not None:
            return word
        if text != text.lower():  # The name of an object has no capital letter.
            close = [WORDS[word] for word in get_close_matches(text[:100].lower(), WORDS)]
            advice = f"did you mean {' or '.join(close)}?" if close else "see docs/reasons.md"
            raise TargetError(f"{text!r} is no reason code and no remedy; {advice}")
        kind_name, name = POD.title, text
    kind = _BY_NAME.get(kind_name.lower())
    if kind is None:
        command = kubectl("get", "KIND", "NAME", "-o", "yaml") + podsettle("preview", "-")
        raise TargetError(
            f"{kind_name!r} is no kind that explain knows; it takes "
            f"{', '.join(f'{each.title}/NAME' for each in KINDS)}, a reason code or a remedy. To "
            "see the decision on the pods of another kind, preview the object: "
            f"{flags.command(command)}"
        )
    if not OBJECT_NAME.fullmatch(name):
        raise TargetError(f"{name!r} is not the name of an object")
    return ObjectTarget(kind, name)
