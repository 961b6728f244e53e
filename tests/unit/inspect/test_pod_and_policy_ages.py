"""Tests of the comparison of a pod's age with those of policies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from webhook.inspect.pod_and_policy_ages import compare_ages

CREATED = datetime(2026, 11, 20, 10, tzinfo=UTC)
SECOND = timedelta(seconds=1)
TIMES = {
    "early": CREATED - SECOND,
    "earlier": CREATED - 2 * SECOND,
    "same": CREATED,
    "late": CREATED + SECOND,
}


@pytest.mark.parametrize(
    ("policies", "clause", "missed"),
    [
        (["early"], "the pod is younger than policy early", True),
        (["earlier", "early"], "the pod is younger than policy earlier, early", True),
        (["late"], "the pod is older than policy late", False),
        (["same"], "the pod was created in the same second as policy same", False),
        (
            ["late", "early"],
            "the pod is older than policy late and is younger than policy early",
            True,
        ),
    ],
)
def test_pod_is_compared_with_each_policy(policies: list[str], clause: str, missed: bool) -> None:
    assert compare_ages(CREATED, policies, TIMES) == (clause, missed)


def test_nothing_is_said_if_one_age_is_not_known() -> None:
    assert compare_ages(None, ["early"], TIMES) is None
    assert compare_ages(CREATED, ["early", "unseen"], TIMES) is None
