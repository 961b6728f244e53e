"""The limit on the size of all annotations of a pod: 256 KiB of keys and values in UTF-8."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.core.admission.annotation_limit import annotations_fit

LIMIT = 256 * 1024


@given(
    st.sampled_from("aé€😀"),
    st.integers(-3, 3),
    st.dictionaries(st.sampled_from(["k", "of", "é"]), st.text("xé😀", max_size=9), min_size=1),
)
def test_the_limit_counts_the_bytes_of_all_annotations(
    character: str, more: int, added: dict[str, str]
) -> None:
    rest = sum(len(key.encode()) + len(text.encode()) for key, text in added.items())
    rest += 0 if "k" in added else 1
    length = (LIMIT - rest) // len(character.encode()) + more
    received = {"l": character * length} if "k" in added else {"k": character * length}
    merged = received | added
    size = sum(len(key.encode()) + len(text.encode()) for key, text in merged.items())
    assert annotations_fit(received, added) is (size <= LIMIT)


@pytest.mark.parametrize("received", [None, {}])
def test_only_added_annotations_count_if_the_pod_has_none(received: dict[str, str] | None) -> None:
    assert annotations_fit(received, {"k": "x" * (LIMIT - 1)})
    assert not annotations_fit(received, {"k": "x" * LIMIT})


def test_nothing_is_refused_if_nothing_is_added() -> None:
    assert annotations_fit({"k": "x" * LIMIT * 2}, {})


def test_a_replaced_annotation_counts_once() -> None:
    assert annotations_fit({"k": "x" * LIMIT}, {"k": ""})
