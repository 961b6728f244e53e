"""The preview page with a keyboard, in a narrow window, in the dark, and for screen readers."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.support.axe import grave_findings
from tests.support.chromium import CONTROL, END, ENTER, SHIFT, TAB, Chromium
from tests.support.preview_page import (
    BROKEN,
    MIXED,
    UNCHANGED,
    WARNED,
    edit_policy,
    focused,
    open_example,
    overflowing,
    preview,
    tab_to,
    verdicts,
    wait_for_answer,
)


def open_examples(page: Chromium) -> None:
    page.click("#example")
    page.wait_for("document.querySelector('#examples:popover-open')")


def edit_and_unfold(page: Chromium) -> None:
    edit_policy(page, "tekton-on-crio", "500ms", "700ms")
    page.click("#add-policy")
    page.click("#copy-link")
    preview(page, WARNED)
    page.run("for (const each of document.querySelectorAll('details')) each.open = true")


def break_a_policy(page: Chromium) -> None:
    edit_policy(page, "tekton-on-crio", "minLifetime", "minLifetme")
    page.type("#namespace", "nowhere")
    preview(page, MIXED)


def make_stale(page: Chromium) -> None:
    preview(page, WARNED)
    page.type("#namespace", "nowhere")
    assert page.text("#status") == "Result of an earlier input"


def show_link(page: Chromium) -> None:
    page.run("navigator.clipboard.writeText = async () => { throw new Error('denied'); }")
    page.paste("#workload", WARNED)
    page.click("#copy-link")
    page.wait_for("document.querySelector('#link').checkVisibility()")


def show_tab(page: Chromium, name: str) -> None:
    preview(page, WARNED)
    page.click("[role=tab]", name)
    assert page.text("[role=tab][aria-selected=true]") == name


def show_long_names(page: Chromium, workload: str) -> None:
    names = r"\b(warned|unchanged|wrapped|bare|registry|web|p)\b"
    preview(page, re.sub(names, "long" * 40, workload))


STATES: dict[str, Callable[[Chromium], None]] = {
    "empty": lambda _page: None,
    "examples": open_examples,
    "example": lambda page: open_example(page, "Tekton"),
    "warned": lambda page: preview(page, WARNED),
    "unchanged": lambda page: preview(page, UNCHANGED),
    "broken": lambda page: preview(page, BROKEN),
    "edited": edit_and_unfold,
    "unreadable": break_a_policy,
    "patch": lambda page: show_tab(page, "Patch"),
    "YAML": lambda page: show_tab(page, "YAML"),
    "JSON": lambda page: show_tab(page, "JSON"),
    "stale": make_stale,
    "link": show_link,
    "long names": lambda page: show_long_names(page, WARNED),
    "long names, unchanged": lambda page: show_long_names(page, UNCHANGED),
    "long names, broken": lambda page: show_long_names(page, BROKEN),
    "long names, mixed": lambda page: show_long_names(page, MIXED),
}


@pytest.mark.parametrize("state", STATES)
def test_state_is_accessible(page: Chromium, state: str) -> None:
    """WCAG forbids scrolling in two directions down to 320 pixels (success criterion 1.4.10)."""
    page.emulate(width=320, height=800)
    STATES[state](page)
    assert overflowing(page) == []
    # Each layout once, and each scheme in a layout: colours do not depend on the width.
    for width, scheme in ((320, "light"), (1280, "dark"), (1800, "light")):
        page.emulate(width=width, scheme=scheme)
        assert grave_findings(page) == [], (width, scheme)


def test_axe_finds_what_is_serious(page: Chromium) -> None:
    page.run(
        "document.querySelector('#namespace').removeAttribute('id');"
        "document.querySelector('#preview').style.color = '#aaa';"
    )
    found = {finding.split(" ")[0] for finding in grave_findings(page)}
    assert {"label", "color-contrast"} <= found


def test_policy_is_edited_with_the_keyboard_alone(page: Chromium) -> None:
    page.paste("#workload", WARNED)
    tab_to(page, ".policy > summary")
    page.press(ENTER)
    page.press(TAB)
    assert page.run("return document.activeElement.getAttribute('aria-label')") == (
        "Policy tekton-on-crio"
    )
    # Comments at the end, then a new priority below spec, typed key by key.
    page.press(CONTROL, END)
    typed = "# edited by hand"
    for key in typed:
        page.press(key)
    page.press(CONTROL, ENTER)
    wait_for_answer(page)
    assert page.texts(".policy.edited .name") == ["tekton-on-crio"]
    assert verdicts(page)["tekton-on-crio"] == "Acts: Sets postInitSleep."
    page.press(TAB)
    assert page.run("return document.activeElement.textContent") == "Revert"
    page.press(ENTER)
    assert page.texts(".policy.edited") == []
    assert page.run("return document.activeElement.getAttribute('aria-label')") == (
        "Policy tekton-on-crio"
    )
    page.press(SHIFT, TAB)
    assert page.run("return document.activeElement.textContent").startswith("tekton-on-crio")
    assert page.run("return document.activeElement.matches('.policy > summary')")


def test_example_is_chosen_with_the_keyboard_alone(page: Chromium) -> None:
    tab_to(page, "#example")
    page.press(ENTER)
    page.wait_for("document.activeElement.matches('#examples li:first-child button')")
    page.press(TAB)
    page.press(ENTER)
    wait_for_answer(page)
    assert page.texts(".pod h3") == ["Pod/wp-01jq3v"]
    assert focused(page) == "workload"


def test_namespace_is_chosen_with_the_keyboard_alone(page: Chromium) -> None:
    page.paste("#workload", WARNED)
    page.press(TAB)
    assert focused(page) == "namespace"
    page.type("#namespace", "batch")
    page.press(ENTER)
    wait_for_answer(page)
    assert page.texts(".facts dd")[0] == "batch"


def test_many_policies_do_not_hide_the_result_in_a_narrow_window(page: Chromium) -> None:
    page.emulate(width=320, height=800)
    open_example(page, "Tekton")
    top = page.run("return document.querySelector('.pod').getBoundingClientRect().top")
    assert 0 <= top < 400
