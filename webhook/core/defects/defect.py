"""The model of a defect: which releases have it, which are fixed, and what cures it.

Each file `webhook/core/defects/*.yaml` describes one defect by the keys of this model.
`webhook.core.defects.catalogue` loads the files.
"""

from __future__ import annotations

import re
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, PlainValidator, model_validator
from pydantic_core import PydanticCustomError

from webhook.core.defects.versions import Runtime, Version, parse_version
from webhook.core.types import NOT_EMPTY, StrictModel, TextPattern

Component: TypeAlias = Literal["cri-o", "containerd", "any runtime", "kubelet"]
"""The software of a node that has releases. `any runtime` stands for each container runtime that
the defect does not list by its name."""

_RELEASE = re.compile(r"\d{1,9}\.\d{1,9}\.\d{1,9}", re.ASCII)


def _parse_release(value: object) -> Version:
    """Return the release in a text such as `1.33.13`."""
    parsed = parse_version(value) if isinstance(value, str) and _RELEASE.fullmatch(value) else None
    if parsed is None:
        raise ValueError(f"{value!r} is not a release: write it with three numbers, as 1.33.13")
    return parsed


Release = Annotated[Version, PlainValidator(_parse_release)]
Link = Annotated[str, TextPattern(r"https://\S+", "is not a link: write it with https://")]
Date = Annotated[
    str, TextPattern(r"\d{4}-\d{2}(?:-\d{2})?", "is not a date: write it as 2026-11-21")
]
Text = Annotated[str, TextPattern(r"(?s)\S(?:.*\S)?", "is not text")]
Identifier = Annotated[
    str, TextPattern(r"[a-z0-9]+(?:-[a-z0-9]+)*", "is not a name such as cri-o-9840")
]


class DefectStatus(StrEnum):
    """Whether a node has a defect."""

    AFFECTED = "affected"
    PARTLY_AFFECTED = "partly affected"
    """Another component of the node avoids the defect in some pods."""
    NOT_AFFECTED = "not affected"
    UNVERIFIED = "not affected, unverified"
    """The release is of a later line than the newest that the defect's file knows. A fix is not
    expected to be lost, so the node counts as not affected."""

    @property
    def needs_remedy(self) -> bool:
        """Whether pods that could land on the node need a remedy."""
        return self in (DefectStatus.AFFECTED, DefectStatus.PARTLY_AFFECTED)


class Symptom(StrictModel):
    """A message that users see, and where they see it."""

    where: Text = Field(description="The place of the message, after `In `.")
    message: Text = Field(description="The exact text, for people who search for it.")


Certainty: TypeAlias = Literal["certain", "likely", "possible"]
"""How sure it is that something was caused by a defect."""


class Sign(StrictModel):
    """An event of a pod that shows the defect."""

    reason: Annotated[str, TextPattern(r"[A-Z][A-Za-z]+", "is not a reason in CamelCase")] = Field(
        description="The event's reason."
    )
    contains: tuple[Text, ...] = Field(
        default=(),
        strict=False,
        description="Texts that the event's message contains, all of them. Omitted: any message.",
    )
    lacks: tuple[Text, ...] = Field(
        default=(), strict=False, description="Texts none of which the event's message contains."
    )
    certainty: Certainty

    def is_in(self, message: str) -> bool:
        """Return whether a message has the texts of the sign."""
        return all(text in message for text in self.contains) and not any(
            text in message for text in self.lacks
        )


class Fix(StrictModel):
    """The first release of a minor line that has the fix."""

    release: Release
    link: Link = Field(description="The pull request or commit in this line.")

    @property
    def line(self) -> tuple[int, int]:
        """The minor line, such as (1, 33)."""
        return self.release[:2]


class Affected(StrictModel):
    """The releases of one component that have a defect.

    A release branch keeps its fixes: in a line with a fix, every later release has it. The last fix
    is the one on the main branch, so every later line has it too.
    """

    component: Component
    since: Release | None = Field(
        default=None, description="The first release that has the defect. Omitted: every older one."
    )
    fixed: tuple[Fix, ...] = Field(
        default=(),
        strict=False,
        description="The first fixed release of each minor line, the oldest line first. Lines "
        "without an entry that are older than the last one have no fix.",
    )
    newest: Release | None = Field(
        default=None,
        description="A release of the newest line whose fix was looked up. Releases of later lines "
        "are not affected, unverified. Omitted: every later release has the defect.",
    )

    @model_validator(mode="after")
    def _releases_are_in_order(self) -> Affected:
        lines = [fix.line for fix in self.fixed]
        if any(later <= earlier for earlier, later in pairwise(lines)):
            raise _error("fixed", "the minor lines are not in ascending order")
        if self.since and self.fixed and self.fixed[0].release <= self.since:
            raise _error("since", f"{self.since} is not older than the first fixed release")
        if self.fixed and self.newest is None:
            raise _error("newest", "is missing beside fixed releases")
        oldest = self.fixed[-1].line if self.fixed else self.since[:2] if self.since else (0, 0)
        if self.newest and self.newest[:2] < oldest:
            raise _error("newest", f"{self.newest} is of an older line than the other releases")
        return self

    def status_of(self, version: Version | None) -> DefectStatus:
        """Return whether a release is affected.

        An unreadable version (None) is affected: a needless remedy costs less than the defect. A
        pre-release sorts before its release, and so lacks what came with the release.
        """
        if version is None:
            return DefectStatus.AFFECTED
        if self.since is not None and version < self.since:
            return DefectStatus.NOT_AFFECTED
        line = version[:2]
        if self.newest is not None and line > self.newest[:2]:
            return DefectStatus.UNVERIFIED
        own_fix = next((fix.release for fix in self.fixed if fix.line == line), None)
        if own_fix is not None:
            return DefectStatus.NOT_AFFECTED if version >= own_fix else DefectStatus.AFFECTED
        is_after_last_fix = bool(self.fixed) and line > self.fixed[-1].line
        return DefectStatus.NOT_AFFECTED if is_after_last_fix else DefectStatus.AFFECTED

    def first_fix_for(self, version: Version | None) -> Version | None:
        """Return the fixed release to which a node upgrades: of its line, or of the next one.

        For an unreadable version (None), return the last fix. Return None if no release is fixed.
        """
        if version is None:
            return self.fixed[-1].release if self.fixed else None
        return next((fix.release for fix in self.fixed if fix.line >= version[:2]), None)


class Partly(StrictModel):
    """A release of the kubelet that avoids a runtime's defect, but not in every pod."""

    kubelet: Release
    reason: Annotated[str, TextPattern(r"[A-Z][A-Za-z]+", "is not a reason in CamelCase")] = Field(
        description="The reason of the condition StillNeeded, whose status is Unknown."
    )
    message: Text = Field(
        description="What is left of the defect on these nodes, after `on 2 of 4 nodes, `."
    )
    link: Link


class Evidence(StrictModel):
    """A figure, how it was found, and on which day."""

    figure: Text
    how: Text
    date: Date


class Defect(StrictModel):
    """A fault of a runtime or kubelet that a remedy works around."""

    id: Identifier
    title: Text
    component: Component = Field(description="The component that has the fault.")
    runs: Text = Field(
        description="What an affected node runs, for messages such as `2 of 4 nodes still run …`."
    )
    requires: Text | None = Field(
        default=None,
        description="The configuration without which no node has the defect, if a Node does not "
        "show it. `podsettle scan` then calls nodes *possible* instead of *affected*.",
    )
    invisible: Text | None = Field(
        default=None,
        description="Why `podsettle scan` cannot see the defect, if it leaves no trace in pods, "
        "Events and Nodes.",
    )
    symptom: Annotated[tuple[Symptom, ...], NOT_EMPTY] = Field(strict=False)
    signs: tuple[Sign, ...] = Field(
        default=(), strict=False, description="Events that show the defect, the surest first."
    )
    cause: Text
    affected: Annotated[tuple[Affected, ...], NOT_EMPTY] = Field(strict=False)
    partly: Partly | None = None
    remedies: tuple[str, ...] = Field(
        strict=False, description="The remedies that cure the defect, by their names in policies."
    )
    advice: Text = Field(description="What is better than a remedy, or what else to know.")
    links: Annotated[tuple[Link, ...], NOT_EMPTY] = Field(strict=False)
    page: Text = Field(description="The page in docs/ that explains the defect and its cure.")
    evidence: Annotated[tuple[Evidence, ...], NOT_EMPTY] = Field(strict=False)

    @model_validator(mode="after")
    def _components_agree(self) -> Defect:
        components = [entry.component for entry in self.affected]
        if len(set(components)) < len(components):
            raise _error("affected", "lists a component twice")
        if self.component not in components:
            raise _error("component", f"{self.component} is not listed under affected")
        if "kubelet" in components and (len(components) > 1 or self.partly):
            raise _error("affected", "a kubelet's defect has no other component and no partly")
        return self

    def status_on(self, runtime: Runtime, kubelet: Version | None) -> DefectStatus:
        """Return whether a node with this runtime and kubelet has the defect."""
        entry, version = self._releases_on(runtime, kubelet)
        if entry is None:
            return DefectStatus.NOT_AFFECTED
        status = entry.status_of(version)
        if (
            status is DefectStatus.AFFECTED
            and self.partly is not None
            and kubelet is not None
            and kubelet >= self.partly.kubelet
        ):
            return DefectStatus.PARTLY_AFFECTED
        return status

    def cure_for(self, runtime: Runtime, kubelet: Version | None) -> Version | None:
        """Return the release that cures an affected node with this runtime and kubelet.

        It is the first fixed release of the node's minor line, or else of the next line that has
        one. Return None for a node that is not affected, and if no release is fixed.
        """
        entry, version = self._releases_on(runtime, kubelet)
        if entry is None or not self.status_on(runtime, kubelet).needs_remedy:
            return None
        return entry.first_fix_for(version)

    def _releases_on(
        self, runtime: Runtime, kubelet: Version | None
    ) -> tuple[Affected | None, Version | None]:
        """Return the entry for a node's component, if it may have the defect, and its version."""
        entries: dict[str, Affected] = {entry.component: entry for entry in self.affected}
        if "kubelet" in entries:
            return entries["kubelet"], kubelet
        return entries.get(runtime.name) or entries.get("any runtime"), runtime.version

    @property
    def can_end(self) -> bool:
        """Whether nodes without the defect exist in future: a later release, or another runtime."""
        return not all(
            entry.component in ("kubelet", "any runtime") and not entry.fixed
            for entry in self.affected
        )


def _error(key: str, message: str) -> PydanticCustomError:
    """Return the error of a rule between keys. `at` makes the path in the error end in the key."""
    return PydanticCustomError("release_rule", "{message}", {"message": message, "at": (key,)})
