"""Tests of the reason codes."""

from __future__ import annotations

import ast

import pytest

from tests.support.paths import ROOT
from webhook.core.reasons import Outcome, Reason


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_camel_case_code_and_a_sentence(reason: Reason) -> None:
    assert reason.value.isalnum()
    assert reason.value[0].isupper()
    assert reason.meaning.endswith(".")
    assert isinstance(reason.warns, bool)


def test_every_reason_is_given_by_the_code() -> None:
    """A comment or a docstring that names it does not count."""
    sources = [path for path in (ROOT / "webhook").rglob("*.py") if path.name != "reasons.py"]
    nodes = (node for path in sources for node in ast.walk(ast.parse(path.read_bytes())))
    named = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "Reason"
    }
    assert {reason.name for reason in Reason} - named == set()


@pytest.mark.parametrize("reason", Reason)
def test_reason_is_found_by_its_code_in_any_case(reason: Reason) -> None:
    assert Reason.of(reason.value) is reason
    assert Reason.of(reason.value.lower()) is reason
    assert Reason.of(reason.value.upper()) is reason
    assert Reason.of(reason.name) in (None, reason)


@pytest.mark.parametrize("text", ["", "NoCommand ", "no-command", "Missing"])
def test_text_that_is_no_code_has_no_reason(text: str) -> None:
    assert Reason.of(text) is None


def test_sentence_of_an_outcome_is_its_message_or_the_meaning_of_its_reason() -> None:
    assert Outcome(Reason.NO_COMMAND).sentence == Reason.NO_COMMAND.meaning
    assert Outcome(Reason.NO_COMMAND, message="no such image").sentence == "no such image"
