"""The queue of Events: no repetitions, and limits that no tenant can exceed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.cluster.event_queue import (
    REPEAT_SECONDS,
    EventKey,
    EventQueue,
    PodEvent,
    RateLimit,
)
from webhook.core.pod import OwnerReference
from webhook.core.reasons import Reason

OWNER = OwnerReference(api_version="batch/v1", kind="Job", name="build", uid="1", controller=True)


def event(uid: str, namespace: str = "ci", reason: Reason = Reason.NO_SHELL) -> PodEvent:
    return PodEvent(EventKey(namespace, uid, "postInitSleep", reason), OWNER, "why")


def test_event_repeats_for_ten_minutes_after_it_was_added() -> None:
    queue = EventQueue()
    first = event("1")
    assert not queue.repeats(first.key, 0.0)
    assert queue.add(first, 0.0)
    assert queue.repeats(first.key, REPEAT_SECONDS - 1)
    assert not queue.repeats(first.key, REPEAT_SECONDS)
    for other in (event("2"), event("1", "other"), event("1", reason=Reason.INTERACTIVE)):
        assert not queue.repeats(other.key, 1.0)


def test_event_that_was_added_again_repeats_from_then_on() -> None:
    queue = EventQueue()
    for now in (0.0, REPEAT_SECONDS):
        assert queue.add(event("1"), now)
    assert queue.repeats(event("1").key, REPEAT_SECONDS + 1)


def test_event_that_was_not_written_does_not_repeat() -> None:
    queue = EventQueue()
    queue.add(event("1"), 0.0)
    queue.forget(event("1").key)
    assert not queue.repeats(event("1").key, 1.0)


def test_namespace_cannot_keep_out_the_events_of_others() -> None:
    queue = EventQueue()
    accepted = [queue.add(event(str(number)), 0.0) for number in range(1_000)]
    assert accepted == [True] * 20 + [False] * 980
    assert queue.add(event("1", "other"), 0.0)
    # What was not accepted is not remembered.
    assert not queue.repeats(event("999").key, 0.0)


def test_events_of_many_namespaces_are_limited_together() -> None:
    queue = EventQueue()
    accepted = [queue.add(event("1", f"n{number}"), 0.0) for number in range(200)]
    assert accepted == [True] * 100 + [False] * 100
    assert queue.take().key.namespace == "n0"
    assert queue.add(event("1", "n200"), 0.0)


def test_namespaces_with_many_events_cannot_together_keep_out_another() -> None:
    queue = EventQueue()
    for number in range(200):
        queue.add(event(str(number), f"n{number % 5}"), 0.0)
    assert len(queue) == 100
    # 16 for each of six namespaces, and four more.
    for number in range(16):
        assert not queue.add(event(str(number), "victim"), 0.0)
    assert all(queue.repeats(event(str(number), "victim").key, 1.0) for number in range(16))
    assert len(queue) == 100
    queue.add(event("16", "victim"), 0.0)
    assert not queue.repeats(event("16", "victim").key, 1.0)
    taken = Counter(queue.take().key.namespace for _ in range(100))
    assert taken["victim"] == 16
    assert set(taken.values()) == {16, 17}
    assert not len(queue)


def test_dropped_event_does_not_repeat() -> None:
    queue = EventQueue()
    for number in range(100):
        queue.add(event(str(number), f"n{number % 5}"), 0.0)
    dropped = event("95", "n0").key
    assert queue.repeats(dropped, 1.0)
    queue.add(event("1", "other"), 0.0)
    assert not queue.repeats(dropped, 1.0)


def test_events_are_taken_from_the_namespaces_in_a_round_robin() -> None:
    queue = EventQueue()
    for name in ("a1", "a2", "a3", "b1", "b2", "c1"):
        queue.add(event(name[1], name[0]), 0.0)
    first = queue.take()
    queue.add(event("4", "a"), 0.0)
    taken = [first, *(queue.take() for _ in range(len(queue)))]
    names = [each.key.namespace + each.key.owner_uid for each in taken]
    assert names == ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]


@given(
    steps=st.lists(
        st.one_of(st.none(), st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 500))),
        max_size=400,
    )
)
def test_queue_remembers_what_it_holds_within_its_limits(
    steps: Sequence[tuple[str, int] | None],
) -> None:
    """A step adds an Event of a namespace, or takes one."""
    queue = EventQueue()
    taken = set()
    for step in steps:
        if step is None:
            if queue:
                taken.add(queue.take().key)
            continue
        added = event(str(step[1]), step[0])
        if not queue.repeats(added.key, 1.0):
            queue.add(added, 0.0)
        assert len(queue) <= 100
    left = [queue.take().key for _ in range(len(queue))]
    assert not queue
    assert all(queue.repeats(key, 1.0) for key in left)
    assert max(Counter(key.namespace for key in left).values(), default=0) <= 20
    assert len(set(left)) == len(left)
    assert taken.isdisjoint(left)


def test_oldest_of_too_many_remembered_events_is_forgotten() -> None:
    queue = EventQueue()
    for number in range(1_001):
        assert queue.add(event(str(number)), float(number) / 10)
        queue.take()
    assert not queue.repeats(event("0").key, 101.0)
    assert queue.repeats(event("1").key, 101.0)


def test_rate_limit_allows_a_burst_and_then_its_rate() -> None:
    rate = RateLimit(1.0, 3)
    assert [rate.reserve(100.0) for _ in range(5)] == [0.0, 0.0, 0.0, 1.0, 2.0]
    assert rate.reserve(105.0) == 0.0


@given(gaps=st.lists(st.floats(0, 10), max_size=60), burst=st.integers(1, 5))
def test_rate_limit_never_exceeds_its_rate(gaps: Sequence[float], burst: int) -> None:
    rate = RateLimit(2.0, burst)
    now, starts = 0.0, []
    for gap in gaps:
        now += gap
        now += rate.reserve(now)
        starts.append(now)
    for first in range(len(starts)):
        for last in range(first, len(starts)):
            allowed = burst + 2.0 * (starts[last] - starts[first])
            assert last - first + 1 <= allowed + 1e-6


@pytest.mark.parametrize("burst", [1, 25])
def test_rate_limit_saves_no_more_than_a_burst(burst: int) -> None:
    rate = RateLimit(1.0, burst)
    rate.reserve(0.0)
    waits = [rate.reserve(1e6) for _ in range(burst + 1)]
    assert waits == [0.0] * burst + [1.0]
