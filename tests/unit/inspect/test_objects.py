"""Tests of the bounds of what tenants write into live objects."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.inspect.objects import (
    MAX_MESSAGE_CHARACTERS,
    MAX_NAME_CHARACTERS,
    Event,
    LiveMetadata,
)


def decoded(type_: type[Any], document: dict[str, Any]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(document), type=type_)


@given(st.integers(0, 3 * MAX_MESSAGE_CHARACTERS), st.sampled_from("aé😀"))
def test_texts_of_an_event_are_cut_and_shorter_ones_are_kept(length: int, character: str) -> None:
    text = character * length
    about = dict.fromkeys(("kind", "namespace", "name", "uid", "fieldPath"), text)
    event = decoded(
        Event, {"metadata": {}, "involvedObject": about, "reason": text, "message": text}
    )
    cut = f"{text[: MAX_NAME_CHARACTERS - 1]}…" if length > MAX_NAME_CHARACTERS else text
    named = event.involved_object
    assert {named.kind, named.namespace, named.name, named.uid, named.field_path} == {cut}
    assert event.reason == cut
    assert len(event.message) == min(length, MAX_MESSAGE_CHARACTERS)
    assert (event.message == text) == (length <= MAX_MESSAGE_CHARACTERS)


def test_name_of_an_owner_that_is_cut_is_no_valid_name() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a" * 700_000, "uid": "u"}
    (found,) = decoded(LiveMetadata, {"ownerReferences": [owner]}).owner_references
    assert len(found.name) == MAX_NAME_CHARACTERS
    assert found.name.endswith("…")
    assert (found.api_version, found.kind, found.uid) == ("apps/v1", "Deployment", "u")


@pytest.mark.parametrize("year", [1, 1969, 2201, 9999])
def test_impossible_times_are_unknown(year: int) -> None:
    time = datetime(year, 1, 2, tzinfo=UTC).isoformat()
    names = ("firstTimestamp", "lastTimestamp", "eventTime")
    fields = {"metadata": {"creationTimestamp": time}, "series": {"lastObservedTime": time}}
    event = decoded(Event, {"involvedObject": {}, **fields, **dict.fromkeys(names, time)})
    assert event.time is event.first_time is None


def test_times_with_another_zone_or_none_are_in_utc() -> None:
    for text in ("2026-11-22T10:00:00", "2026-11-22 10:00:00", "2026-11-22T12:00:00+02:00"):
        created = decoded(LiveMetadata, {"creationTimestamp": text}).creation_timestamp
        assert (created, created.tzinfo) == (datetime(2026, 11, 22, 10, tzinfo=UTC), UTC), text
