"""Tests of the explanations of reason codes and remedies, and of the page that has all of them."""

from __future__ import annotations

from tests.support.markdown import Page
from tests.support.paths import DOCS
from webhook.core.reasons import Reason
from webhook.core.remedies import REMEDIES
from webhook.core.remedies.shell_wrapper import SCRIPT
from webhook.inspect.explain.report import as_text
from webhook.inspect.explain.target import WRAPPER, explain_word

PAGE = Page(DOCS / "reasons.md")


def test_every_reason_has_advice_and_an_anchor_on_the_page() -> None:
    for reason in Reason:
        found = explain_word(reason)
        assert found["advice"].endswith("."), reason
        assert found["advice"] != "Nothing." or not reason.warns, reason
        assert found["page"] == f"docs/reasons.md#{reason.lower()}"
        assert reason.lower() in PAGE.anchors


def test_reason_has_meaning_remedies_warning_and_advice() -> None:
    text = as_text(explain_word(Reason.NO_COMMAND))
    assert text.startswith(f"NoCommand: {Reason.NO_COMMAND.meaning}\n")
    assert "\nWhether kubectl warns of it:\n  yes\n" in text
    assert "\nRemedies that give it:\n  postInitSleep, openFiles\n" in text
    assert "\nWhat you can do:\n  In the container, write the image's `ENTRYPOINT`" in text


def test_wrapper_is_printed_with_comments_and_stays_a_script() -> None:
    found = explain_word(WRAPPER)
    lines = found["commented"].splitlines(keepends=True)
    assert "".join(line for line in lines if not line.startswith("# ")) == found["script"] == SCRIPT
    assert len(lines) - len(SCRIPT.splitlines()) == 17
    assert max(map(len, lines)) <= 101
    assert "  # Pass a signal on to the command.\n  pass(){" in as_text(found)


def test_every_remedy_is_explained_with_its_settings_and_reasons() -> None:
    for name, remedy in REMEDIES.items():
        found = explain_word(name)
        assert bool(found["settings"]) != bool(found["values"])
        assert all(each["description"] for each in found["settings"])
        text = as_text(found)
        assert text.startswith(f"{name}: {remedy.description}\n")
        assert "…" not in text
        assert all(reason in text for reason in remedy.reasons)


def test_remedy_names_the_defect_that_it_is_for_and_its_settings() -> None:
    lines = as_text(explain_word("postInitSleep")).splitlines()
    assert any(line.startswith("  cri-o-9840: ") for line in lines)
    assert any(line.startswith("  minLifetime: ") for line in lines)


def test_defect_and_symptom_are_explained_by_the_ids_of_a_scan() -> None:
    for name, *lines in (
        ("cri-o-9840", "  postInitSleep, retryInitExit255", "  docs/exit-255.md"),
        ("selinux-mount", "  In the events of the second pod, "),
        ("missing-handler", "  docs/node-config.md"),
        ("not-settled", "  A policy changes a pod only when the pod is created."),
    ):
        text = as_text(explain_word(name))
        assert text.startswith(f"{name}: ")
        assert all(f"\n{line}" in text for line in lines)
