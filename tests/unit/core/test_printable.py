"""Tests of texts of tenants on terminals and pages."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from webhook.core.printable import is_printable, printable, printable_json


def test_characters_that_are_not_printable_are_escaped() -> None:
    cases: list[tuple[str, str]] = [
        ("build-1 für ci", "build-1 für ci"),
        ("a\x1b[31mb", r"a\x1b[31mb"),
        ("a\nb\rc\td", r"a\nb\rc\td"),
        ("ü\u202egnp.exe", r"ü\u202egnp.exe"),
        ("\u2028\ufeff\ud800", r"\u2028\ufeff\ud800"),
        ("a\u3164\u115f\u2800b", r"a\u3164\u115f\u2800b"),
        ("a\u034f\ufe0f\U000e0100", r"a\u034f\ufe0f\U000e0100"),
    ]
    assert [(text, printable(text)) for text, _ in cases] == cases


@given(st.text())
def test_result_is_printable_and_stays_the_same(text: str) -> None:
    shown = printable(text)
    assert is_printable(shown)
    assert printable(shown) == shown


@given(st.recursive(st.text(), lambda inner: st.dictionaries(st.text(), inner)))
def test_printable_json_has_the_same_values(value: object) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=2)
    shown = printable_json(text)
    assert is_printable(shown.replace("\n", ""))
    assert json.loads(shown) == value


def test_printable_json_escapes_controls_for_terminals_and_for_the_direction_of_text() -> None:
    shown = printable_json(json.dumps("ü\u202eg\x7f😀\U000e0001", ensure_ascii=False))
    assert shown == r'"ü\u202eg\u007f😀\udb40\udc01"'
