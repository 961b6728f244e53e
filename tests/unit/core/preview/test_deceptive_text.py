"""Tests that no character of a previewed pod can deceive a reader of the preview."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.support.factories import SETTINGS, container, pod, policy, view
from webhook.core.preview.document import Document
from webhook.core.preview.pod_before_and_after import to_yaml
from webhook.core.preview.preview import Preview, preview_all
from webhook.core.printable import is_printable

BIDI_CONTROLS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
INVISIBLE = "\u034f\u115f\u180e\u200b\u2060\u2800\u3164\ufe0f\ufeff\uffa0\U000e0041\U000e0100"
OTHERS = "\x1b\x7f\x85\xa0\u2028\u2029"


@pytest.mark.parametrize("character", BIDI_CONTROLS + INVISIBLE + OTHERS)
def test_yaml_escapes_a_character_that_deceives_and_means_the_same(character: str) -> None:
    value = {f"key{character}": [f"a{character}b", f"#!/bin/sh\n# {character}\nexit\n", character]}
    text = to_yaml(value)
    assert character not in text
    assert all(map(is_printable, text.split("\n")))
    assert yaml.safe_load(text) == value


# PyYAML cannot read the last two characters of the basic plane, so no document contains them.
_CHARACTERS = st.one_of(
    st.characters(exclude_categories=["Cs"], exclude_characters="\ufffe\uffff"),
    st.sampled_from(f"{BIDI_CONTROLS}{INVISIBLE}{OTHERS}\n\t\\\"' #:-ab"),
)


@given(st.dictionaries(st.text(_CHARACTERS), st.text(_CHARACTERS)))
def test_yaml_of_any_text_is_printable_and_means_the_same(value: Mapping[str, str]) -> None:
    text = to_yaml(value)
    assert all(map(is_printable, text.split("\n")))
    assert yaml.safe_load(text) == value


def test_yaml_of_readable_text_in_other_scripts_is_not_escaped() -> None:
    assert to_yaml({"é": "für 木\n水\n"}) == "é: |\n  für 木\n  水\n"


def _preview_hostile_pod() -> Preview:
    document: dict[str, Any] = pod(
        container("prepare", "sh", "-c", f"true # {BIDI_CONTROLS}\n{INVISIBLE}"),
        annotations={"note": f"a{BIDI_CONTROLS}"},
    )
    document["metadata"]["name"] = f"p{BIDI_CONTROLS}\n+++ forged\x1b[31m"
    seen = view(policy())
    (found,) = preview_all(Document(document), seen, SETTINGS)
    assert isinstance(found, Preview)
    return found


def test_diff_consists_of_lines_of_the_two_yaml_texts_and_shows_escapes() -> None:
    found = _preview_hostile_pod()
    lines = found.diff.rstrip("\n").split("\n")
    assert all(map(is_printable, lines))
    assert [line[:3] for line in lines[:3]] == ["---", "+++", "@@ "]
    assert "\\u202e" in found.diff
    for prefixes, value in ((" -", found.workload.pod), (" +", found.after)):
        shown = {line[1:] for line in lines[3:] if line[0] in prefixes}
        assert shown <= set(to_yaml(value).split("\n"))
