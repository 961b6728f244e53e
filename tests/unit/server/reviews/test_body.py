"""The body of a review while it arrives, and its part of the memory budget."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.server.limits import DEFAULT_LIMITS
from webhook.server.reviews.body import MemoryBudget, ReviewBody


@given(pieces=st.lists(st.binary(max_size=40), max_size=20))
def test_body_in_pieces_is_joined_and_counted_until_released(pieces: list[bytes]) -> None:
    budget = MemoryBudget()
    body = ReviewBody(budget, DEFAULT_LIMITS)
    for number, piece in enumerate(pieces):
        body.feed(piece, is_last=False)
        # Reading the data in between changes nothing.
        if number % 3 == 0:
            assert body.data == b"".join(pieces[: number + 1])
        assert budget.used_bytes == body.length
        assert body.wants_more
    body.feed(b"", is_last=True)
    assert not body.wants_more
    assert body.complete
    assert body.data == b"".join(pieces)
    assert type(body.data) is bytes
    body.release()
    body.release()
    assert budget.used_bytes == 0
    assert body.data == b""


def test_body_is_not_copied_to_read_it() -> None:
    body = ReviewBody(MemoryBudget(), DEFAULT_LIMITS)
    body.feed(b"x" * 1000, is_last=True)
    assert body.data is body.data


def test_pieces_of_one_byte_take_little_more_memory_than_the_body() -> None:
    length = 100_000
    body = ReviewBody(MemoryBudget(), DEFAULT_LIMITS)
    tracemalloc.start()
    try:
        for number in range(length):
            # A new object each time, as from a socket.
            body.feed(bytes(bytearray((number % 256,))), is_last=False)
        used_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used_bytes < 2 * length


def test_bytes_after_the_maximum_are_counted_and_discarded() -> None:
    budget = MemoryBudget(limit_bytes=2 * DEFAULT_LIMITS.max_review_bytes)
    body = ReviewBody(budget, DEFAULT_LIMITS)
    length = DEFAULT_LIMITS.max_review_bytes
    for piece in (b"x" * (length - 1), b"yz", b"z" * length):
        body.feed(piece, is_last=False)
        assert body.wants_more
    assert body.length == 2 * DEFAULT_LIMITS.max_review_bytes + 1
    assert len(body.data) == budget.used_bytes == DEFAULT_LIMITS.max_review_bytes
    assert body.data.endswith(b"xy")


@pytest.mark.parametrize("others", [0, 1])
def test_exhausted_budget_stops_a_body_after_the_guaranteed_bytes(others: int) -> None:
    limit = DEFAULT_LIMITS.guaranteed_body_bytes - 1
    budget = MemoryBudget(limit_bytes=limit, used_bytes=others * limit)
    body = ReviewBody(budget, DEFAULT_LIMITS)
    body.feed(b"x" * (DEFAULT_LIMITS.guaranteed_body_bytes - 1), is_last=False)
    assert budget.exhausted is bool(others)
    assert body.wants_more
    assert not body.over_budget
    body.feed(b"x", is_last=False)
    assert body.over_budget
    assert not body.wants_more


def test_last_piece_is_accepted_even_if_it_exhausts_the_budget() -> None:
    body = ReviewBody(MemoryBudget(limit_bytes=0), DEFAULT_LIMITS)
    body.feed(b"x" * DEFAULT_LIMITS.guaranteed_body_bytes, is_last=True)
    assert not body.over_budget
    assert not body.wants_more
    assert len(body.data) == DEFAULT_LIMITS.guaranteed_body_bytes
