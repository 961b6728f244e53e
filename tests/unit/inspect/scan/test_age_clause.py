"""Tests of the comparison of a pod's age with those of policies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from webhook.inspect.scan.unsettled import age_clause

CREATED = datetime(2026, 11, 20, 10, tzinfo=UTC)
SECOND = timedelta(seconds=1)
TIMES = {
    "early": CREATED - SECOND,
    "earlier": CREATED - 2 * SECOND,
    "same": CREATED,
    "late": CREATED + SECOND,
}
MISSED = "; podsettle was not called, or the policy has been changed since"


def test_pod_is_compared_with_each_policy() -> None:
    cases: list[tuple[list[str], str]] = [
        (["early"], f"missed: the pod is younger than policy early{MISSED}"),
        (["earlier", "early"], f"missed: the pod is younger than policy earlier, early{MISSED}"),
        (["late"], "the pod is older than policy late"),
        (["same"], "the pod was created in the same second as policy same"),
        (
            ["late", "early"],
            f"missed: the pod is older than policy late and is younger than policy early{MISSED}",
        ),
    ]
    assert [(policies, age_clause(CREATED, policies, TIMES)) for policies, _ in cases] == cases


def test_nothing_is_said_if_one_age_is_not_known() -> None:
    assert age_clause(None, ["early"], TIMES) == ""
    assert age_clause(CREATED, ["early", "unseen"], TIMES) == ""
