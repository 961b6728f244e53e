"""The target of `podsettle explain`: a pod, a workload, a reason code or a remedy."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import NamedTuple, TypeAlias

from webhook.cluster.rights import Right
from webhook.core.constants import OBJECT_NAME
from webhook.core.reasons import Reason
from webhook.core.remedies import REMEDIES
from webhook.inspect.cluster_flags import NO_FLAGS, ClusterFlags, kubectl, podsettle


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
CRON_JOB = ObjectKind("CronJob", "batch", "cronjobs")

# The short name that kubectl has for each kind.
_SHORT_NAMES = {
    POD: "po",
    DEPLOYMENT: "deploy",
    STATEFUL_SET: "sts",
    DAEMON_SET: "ds",
    JOB: "job",
    CRON_JOB: "cj",
}
# Messages name a pod and a CronJob by names that every reader knows.
_TITLES = {**_SHORT_NAMES, POD: "pod", CRON_JOB: "cronjob"}
_FORMS = ", ".join(f"{name}/NAME" for name in _TITLES.values())


def _kubectl_names(kind: ObjectKind, short_name: str) -> Iterator[str]:
    """Yield the names that kubectl accepts for a kind."""
    yield short_name
    for name in (kind.kind.lower(), kind.plural):
        yield name
        if kind.group:
            yield from (f"{name}.{kind.group}", f"{name}.v1.{kind.group}")


_KINDS = {
    name: kind for kind, short in _SHORT_NAMES.items() for name in _kubectl_names(kind, short)
}


class TargetError(ValueError):
    """Raised for a text that names no target."""


class ObjectTarget(NamedTuple):
    """A pod or a workload, by its name."""

    kind: ObjectKind
    name: str

    def __str__(self) -> str:
        return f"{_TITLES[self.kind]}/{self.name}"

    def right(self, namespace: str) -> Right:
        """Return the right to read the object."""
        return Right("get", self.kind.group, self.kind.plural, namespace, self.name)

    @property
    def list_right(self) -> Right:
        """The right to list the objects of the kind in all namespaces."""
        return Right("list", self.kind.group, self.kind.plural)


class RemedyTarget(NamedTuple):
    """A remedy, by its name in policies."""

    name: str


Target: TypeAlias = ObjectTarget | RemedyTarget | Reason

_WORDS: dict[str, Reason | RemedyTarget] = {
    **{code.lower(): code for code in Reason},
    **{name.lower(): RemedyTarget(name) for name in REMEDIES},
}
"""The codes and remedies by their names in lower case."""


def parse_target(text: str, flags: ClusterFlags = NO_FLAGS) -> Target:
    """Return the target that a text names. Raise TargetError if it names none.

    `flags` are those of the printed command.

    A reason code or a remedy may be written in any case. A pod with such a name needs `pod/`.
    """
    kind_name, slash, name = text.partition("/")
    if not slash:
        word = _WORDS.get(text.lower())
        if word is not None:
            return word
        # The name of an object has no capital letter.
        if text != text.lower():
            raise _no_word(text)
        kind_name, name = "pod", text
    kind = _KINDS.get(kind_name.lower())
    if kind is None:
        command = kubectl("get", "KIND", "NAME", "-o", "yaml") + podsettle("preview", "-")
        raise TargetError(
            f"{kind_name!r} is no kind that explain knows; it takes {_FORMS}, a reason code or a "
            "remedy. To see the decision on the pods of another kind, preview the object: "
            f"{flags.command(command)}"
        )
    if not OBJECT_NAME.fullmatch(name):
        raise TargetError(f"{name!r} is not the name of an object")
    return ObjectTarget(kind, name)


def _no_word(text: str) -> TargetError:
    names = {word: _name_of(target) for word, target in _WORDS.items()}
    close = get_close_matches(text[:100].lower(), names, n=3)
    advice = (
        f"did you mean {' or '.join(names[word] for word in close)}?"
        if close
        else "docs/reasons.md lists the codes"
    )
    return TargetError(f"{text!r} is no reason code and no remedy; {advice}")


def _name_of(target: Reason | RemedyTarget) -> str:
    return str(target) if isinstance(target, Reason) else target.name
