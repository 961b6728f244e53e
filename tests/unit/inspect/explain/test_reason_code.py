"""Tests of the explanation of a reason code, and of the page that contains all of them."""

from __future__ import annotations

import pytest

from tests.support.markdown import Page
from tests.support.paths import DOCS
from webhook.core.reasons import Reason
from webhook.core.remedies import REMEDIES
from webhook.inspect.explain.advice import ADVICE
from webhook.inspect.explain.reason_code import explain_reason
from webhook.inspect.explain.text import as_text

PAGE = Page(DOCS / "why-was-my-pod-changed.md")


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_advice_and_an_anchor_on_the_page(reason: Reason) -> None:
    explained = explain_reason(reason, "https://docs.example/why")
    assert explained.advice.endswith(".")
    assert explained.explanation == f"https://docs.example/why#{reason.lower()}"
    assert reason.lower() in PAGE.anchors


def test_advice_names_only_reasons_that_exist() -> None:
    assert set(ADVICE) == set(Reason)


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason.warns])
def test_reason_that_warns_has_more_advice_than_nothing(reason: Reason) -> None:
    assert ADVICE[reason] != "Nothing."


def test_text_has_meaning_remedies_warning_and_advice() -> None:
    lines = as_text(explain_reason(Reason.NO_COMMAND)).splitlines()
    assert lines[0] == f"NoCommand: {Reason.NO_COMMAND.meaning}"
    assert lines[1] == "Remedies that give it: postInitSleep, openFiles."
    assert lines[2] == "Does kubectl warn? Yes."
    assert lines[3].startswith("What you can do: Write the `ENTRYPOINT`")
    assert len(lines) == 4


def test_page_has_every_remedy_with_its_purpose() -> None:
    for name, remedy in REMEDIES.items():
        assert f"| `{name}` | {remedy.description} |" in PAGE.text
