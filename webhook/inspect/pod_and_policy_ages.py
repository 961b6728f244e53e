"""The age of a pod in comparison with the policies that cover it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple


class AgeComparison(NamedTuple):
    """Whether policies existed when a pod was created."""

    clause: str
    """The comparison as a clause, such as `the pod is older than policy ci`."""
    missed: bool
    """Whether the pod is younger than one of the policies, so that the policy missed it."""


def compare_ages(
    created: datetime | None, policies: Sequence[str], times: Mapping[str, datetime]
) -> AgeComparison | None:
    """Compare a pod with policies. Return None if the age of one of them is not known.

    `times` are the times at which policies were created, by name. The API server stores whole
    seconds, so the order of two objects of one second is not known.
    """
    if created is None or not policies or any(policy not in times for policy in policies):
        return None
    younger = [policy for policy in policies if times[policy] < created]
    return AgeComparison(
        f"the pod {' and '.join(_parts(created, policies, times))}", missed=bool(younger)
    )


def _parts(
    created: datetime, policies: Sequence[str], times: Mapping[str, datetime]
) -> Iterator[str]:
    groups: dict[str, list[str]] = {}
    for policy in policies:
        time = times[policy]
        if time < created:
            relation = "is younger than"
        elif time > created:
            relation = "is older than"
        else:
            relation = "was created in the same second as"
        groups.setdefault(relation, []).append(policy)
    for relation, names in groups.items():
        yield f"{relation} policy {', '.join(names)}"
