"""Tests of the reason codes."""

from __future__ import annotations

import ast
import re

from tests.support.paths import ROOT
from webhook.core.reasons import Outcome, Reason


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


def test_reason_has_a_sentence_and_is_found_by_its_camel_case_code_in_any_case() -> None:
    for reason in Reason:
        assert reason.meaning.endswith("."), reason
        assert re.fullmatch("[A-Z][A-Za-z0-9]+", reason.value), reason
        for code in (reason.value, reason.value.lower(), reason.value.upper()):
            assert Reason.of(code) is reason
        assert Reason.of(reason.name) in (None, reason)
    for text in ("", "NoCommand ", "no-command", "Missing"):
        assert Reason.of(text) is None, text


def test_sentence_of_an_outcome_is_its_message_or_the_meaning_of_its_reason() -> None:
    assert Outcome(Reason.NO_COMMAND).sentence == Reason.NO_COMMAND.meaning
    assert Outcome(Reason.NO_COMMAND, message="no such image").sentence == "no such image"
