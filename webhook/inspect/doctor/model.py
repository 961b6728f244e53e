"""What a check gets, an installation, and what it yields: findings, for a report and its text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import Unreachable
from webhook.cluster.reader import ClusterReader
from webhook.cluster.rights import NotAllowedError, Right
from webhook.cluster.view_reader import Kind, ReadView, read_view
from webhook.core.types import CamelCaseModel, Json
from webhook.images.lookup import ImageLookup
from webhook.inspect.cluster_flags import ClusterFlags
from webhook.inspect.installation import CONFIGURATIONS_RIGHT, Installation


class UnansweredError(Exception):
    """Raised by a check that has no answer. The text says why."""


@dataclass
class Installed:
    """An installation and what was read of it. Use a new one for each round of checks."""

    server: ApiServer
    installation: Installation
    new_image_lookup: Callable[[ApiServer], ImageLookup]
    """Returns a look-up that reads pull secrets of this cluster. The caller closes it."""
    flags: ClusterFlags
    """The flags of printed commands."""
    chosen_namespace: str | None
    """The namespace for the dry run and for the pull of the helper. None: a covered one."""
    faults: set[str] = field(default_factory=set)
    """The names of the checks that have found a fault so far."""
    _view: ReadView | None = None

    def __post_init__(self) -> None:
        self.reader = ClusterReader(self.server)

    async def view(self, *kinds: Kind) -> ReadView:
        """Return the policies, namespaces, RuntimeClasses and nodes of the cluster.

        Raises NotAllowedError or Unreachable if one of `kinds` could not be read.
        """
        if self._view is None:
            chosen = (self.chosen_namespace,) if self.chosen_namespace else ()
            self._view = await read_view(self.server, namespaces=chosen)
        for unread in self._view.unread:
            if unread.resource in kinds:
                if unread.is_denied:
                    raise NotAllowedError(unread.right)
                raise Unreachable(f"the API server has no {unread.resource}")
        return self._view

    async def configuration(self) -> Json:
        """Return the MutatingWebhookConfiguration. Empty if it does not exist."""
        right = CONFIGURATIONS_RIGHT._replace(verb="get", name=self.installation.configuration)
        return await self.reader.get(right) or {}

    async def pods(self) -> list[Json]:
        """Return the pods of the Deployment, except those that end or have ended."""
        selected = self.installation.deployment["spec"]["selector"].get("matchLabels") or {}
        labels = ",".join(f"{key}%3D{value}" for key, value in selected.items())
        right = Right("list", "", "pods", self.installation.namespace)
        return [
            pod
            for pod in await self.reader.list(right, f"labelSelector={labels}")
            if "deletionTimestamp" not in pod["metadata"]
            and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        ]


def is_ready(pod: Json) -> bool:
    """Return whether the kubelet says that a pod is ready."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


class State(StrEnum):
    """The state of one finding."""

    OK = "ok"
    FAULT = "fault"
    """Something does not work, or stops working with the next failure."""
    WARNING = "warning"
    NOT_LOOKED_AT = "not_looked_at"
    """The user lacks the right to read what the check needs."""
    UNKNOWN = "unknown"
    """The check has no answer, for example because another fault prevents it."""

    @property
    def label(self) -> str:
        """The state in the text of a report."""
        return "FAULT" if self is State.FAULT else self.value.replace("_", " ")

    def __call__(self, result: str, command: str = "") -> Finding:
        """Return a finding with this state, and a command that reads more."""
        return Finding(state=self, result=result, command=command)


_WIDTH = max(len(each.label) for each in State)


class Finding(CamelCaseModel):
    """One result of a check. A check has several if it looks at several objects."""

    check: str = ""
    """The name of the check. A check leaves it out if the finding has its own name."""
    state: State
    result: str
    """A clause without a capital and a period, such as `2 replicas exist`."""
    repair: str = ""
    """The page and the section that say what to do about a fault or a warning. A check gives only
    the section, and leaves it out if it has the name of the check."""
    command: str = ""
    """A command that reads more. Empty if there is none."""
    right: str = ""
    """The right that the user lacks. Empty unless the state is NOT_LOOKED_AT."""


class DoctorReport(CamelCaseModel):
    """All findings, and the installation that they are about."""

    cluster: str
    """The context and the address of the API server."""
    installation: str
    """`NAMESPACE/NAME` of the Deployment. Empty if there is none."""
    checks: tuple[Finding, ...]

    @property
    def faults(self) -> int:
        """The number of faults."""
        return sum(each.state is State.FAULT for each in self.checks)

    @property
    def saw_nothing(self) -> bool:
        """Whether no finding says anything about the installation."""
        return {each.state for each in self.checks} <= {State.NOT_LOOKED_AT, State.UNKNOWN}

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield the lines of the text: a label of equal width, which may be blank, and a text.

        The texts are not escaped: they may contain control characters.
        """
        where = f"{self.installation} in " if self.installation else ""
        yield "", f"podsettle doctor: {where}{self.cluster}"
        for each in self.checks:
            yield f"{each.state.label:{_WIDTH}}", f"  {each.check}: {each.result}"
            for more in filter(None, (each.repair, each.command)):
                yield " " * _WIDTH, f"    {more}"
        others = sum(each.state not in (State.OK, State.FAULT) for each in self.checks)
        summary = {0: "no fault", 1: "1 fault"}.get(self.faults, f"{self.faults} faults")
        count = "1 line is" if others == 1 else f"{others} lines are"
        yield "", summary + f"; {count} neither ok nor a fault" * bool(others)
