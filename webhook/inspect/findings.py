"""Findings about a cluster, with their evidence and certainty, and what was looked at.

The absence of findings means something only if everything was looked at. `verdict` is the one
function that says "none".
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from webhook.cluster.rights import Unread

MAX_LISTED = 5
"""The maximum number of names, reasons, commands or pieces of evidence in one place, because people
read them."""


def format_time(time: datetime) -> str:
    """Return a time of the cluster for people, always in the same form."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


class Certainty(StrEnum):
    """How certain a finding is. The first member is the most certain one."""

    CERTAIN = "certain"
    LIKELY = "likely"
    POSSIBLE = "possible"


class Looked(StrEnum):
    """Whether the objects of an area were read. The last member is the worst one."""

    LOOKED_AT = "looked_at"
    """All objects were read."""
    PARTLY = "partly"
    """Some objects were not read, or the cluster keeps them for a limited time only."""
    NOT_LOOKED_AT = "not_looked_at"
    """The objects could not be read."""

    @property
    def phrase(self) -> str:
        """The state for people, such as `not looked at`."""
        return "partly looked at" if self is Looked.PARTLY else self.value.replace("_", " ")


class Area(msgspec.Struct, frozen=True, rename="camel"):
    """One kind of objects, and whether it was looked at."""

    name: str
    """The plural name of the resource, such as `pods`."""
    looked: Looked
    why: str = ""
    """Why not everything was looked at. Empty if everything was."""
    right: str = ""
    """The missing right, such as `list pods in all namespaces`. Empty if none is missing."""

    @classmethod
    def of(cls, unread: Unread) -> Area:
        """Return the area of objects that could not be read."""
        right = str(unread.right) if unread.is_denied else ""
        return cls(unread.resource, Looked.NOT_LOOKED_AT, unread.other_cause, right)

    @property
    def limit(self) -> str:
        """A clause that says what was not looked at and why."""
        right = f"needs the right to {self.right}" if self.right else ""
        details = "; ".join(filter(None, (right, self.why)))
        return f"{self.name} ({details})" if details else self.name


class Evidence(msgspec.Struct, frozen=True, rename="camel"):
    """The value of a field that supports a finding."""

    object: str
    """The object with the field, such as `pod ci/build-1`."""
    field: str
    value: str
    time: datetime | None = None
    """When the value came about, by the clock of the cluster."""


class FoundContainer(msgspec.Struct, frozen=True, rename="camel"):
    """A container with a symptom."""

    name: str
    init: bool
    """Whether it is an init container."""
    kept_alive: bool = False
    """Whether postInitSleep keeps it alive already, so that no policy is proposed for it."""


class Finding(msgspec.Struct, frozen=True, rename="camel"):
    """One symptom at one workload."""

    symptom: str
    """The identifier of the symptom."""
    defect: str | None
    """The identifier of the defect in the catalogue. None for a fault of configuration."""
    namespace: str
    workload: str
    """The kind and name of the workload, such as `Deployment/web`."""
    count: int
    """The number of times that the symptom was found."""
    certainty: Certainty
    sentence: str
    evidence: tuple[Evidence, ...]
    first_seen: datetime | None
    last_seen: datetime | None
    advice: str
    """What to do about the finding."""
    container: FoundContainer | None = None
    """The container of the first pod with the symptom. None if the whole pod has it."""
    node: str = ""
    """The node of the first pod."""
    pod: str = ""
    """The name of the first pod."""
    group: str = ""
    """The API group of the workload's kind, such as `apps`."""


class Answer(StrEnum):
    """The answer to the question whether a cluster has a symptom."""

    FOUND = "found"
    NONE = "none"
    UNKNOWN = "unknown"
    NOT_LOOKED_AT = "not_looked_at"


class Verdict(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to the question whether a cluster has a symptom, in words."""

    answer: Answer
    text: str


def verdict(count: int, areas: Iterable[Area]) -> Verdict:
    """Return the answer for a symptom that was found `count` times.

    `areas` are all areas that the symptom could have been found in. If the symptom was not found,
    the answer is "none" only if every one of them was looked at.
    """
    areas = tuple(areas)
    unread = ", ".join(each.limit for each in areas if each.looked is Looked.NOT_LOOKED_AT)
    limited = ", ".join(each.limit for each in areas if each.looked is Looked.PARTLY)
    if count:
        text = f"found {count}" + (f"; not looked at: {unread}" if unread else "")
        return Verdict(Answer.FOUND, text + (f"; perhaps more: {limited}" if limited else ""))
    if unread:
        return Verdict(Answer.NOT_LOOKED_AT, f"not looked at: {unread}")
    if limited:
        text = f"unknown: nothing was found, but objects may be missing: {limited}"
        return Verdict(Answer.UNKNOWN, text)
    if not areas:
        return Verdict(Answer.UNKNOWN, "unknown: nothing was looked at")
    names = ", ".join(area.name for area in areas)
    return Verdict(Answer.NONE, f"none in what was looked at: {names}")
