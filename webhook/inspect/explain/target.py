"""The target of `podsettle explain`: a pod, a workload or a reason code."""

from __future__ import annotations

from difflib import get_close_matches
from typing import NamedTuple, TypeAlias

from webhook.cluster.rights import Right
from webhook.core.constants import OBJECT_NAME
from webhook.core.reasons import Reason


class ObjectKind(NamedTuple):
    """A kind of object that can be explained."""

    kind: str
    group: str
    plural: str


POD = ObjectKind("Pod", "", "pods")
DEPLOYMENT = ObjectKind("Deployment", "apps", "deployments")
STATEFUL_SET = ObjectKind("StatefulSet", "apps", "statefulsets")
DAEMON_SET = ObjectKind("DaemonSet", "apps", "daemonsets")
JOB = ObjectKind("Job", "batch", "jobs")

# By the names that kubectl accepts for each kind, the one for messages first.
_NAMES: dict[ObjectKind, tuple[str, ...]] = {
    POD: ("pod", "pods", "po"),
    DEPLOYMENT: ("deploy", "deployment", "deployments", "deployment.apps"),
    STATEFUL_SET: ("sts", "statefulset", "statefulsets", "statefulset.apps"),
    DAEMON_SET: ("ds", "daemonset", "daemonsets", "daemonset.apps"),
    JOB: ("job", "jobs", "job.batch"),
}
_KINDS = {name: kind for kind, names in _NAMES.items() for name in names}
_FORMS = ", ".join(f"{names[0]}/NAME" for names in _NAMES.values())


class TargetError(ValueError):
    """Raised for a text that names no target."""


class ObjectTarget(NamedTuple):
    """A pod or a workload, by its name."""

    kind: ObjectKind
    name: str

    def __str__(self) -> str:
        return f"{_NAMES[self.kind][0]}/{self.name}"

    def right(self, namespace: str) -> Right:
        """Return the right to read the object."""
        return Right("get", self.kind.group, self.kind.plural, namespace, self.name)


Target: TypeAlias = ObjectTarget | Reason


def parse_target(text: str) -> Target:
    """Return the target that a text names. Raise TargetError if it names none.

    A reason code has a capital letter, and the name of an object has none.
    """
    kind_name, slash, name = text.partition("/")
    if not slash:
        if text != text.lower():
            return _parse_reason(text)
        kind_name, name = "pod", text
    kind = _KINDS.get(kind_name.lower())
    if kind is None:
        raise TargetError(
            f"{kind_name!r} is no kind that explain knows; it takes {_FORMS} or a reason code. To "
            "see the decision on the pods of another kind, preview the object: "
            "kubectl get KIND NAME -o yaml | podsettle preview -"
        )
    if not OBJECT_NAME.fullmatch(name):
        raise TargetError(f"{name!r} is not the name of an object")
    return ObjectTarget(kind, name)


def _parse_reason(text: str) -> Reason:
    reason = Reason.of(text)
    if reason is not None:
        return reason
    by_lower_case = {code.lower(): code for code in Reason}
    close = get_close_matches(text[:100].lower(), by_lower_case, n=3)
    advice = (
        f"did you mean {' or '.join(by_lower_case[code] for code in close)}?"
        if close
        else "docs/reasons.md lists the codes"
    )
    raise TargetError(f"{text!r} is no reason code; {advice}")
