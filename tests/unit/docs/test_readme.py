"""Tests of the README: its outputs are those of the program, and its own words are explained."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from click.testing import CliRunner

from tests.support.markdown import Page, Typed
from tests.support.paths import EXAMPLES, ROOT
from webhook.cli import main
from webhook.core.defects.catalogue import DEFECTS
from webhook.core.remedies import REMEDIES

README = Page(ROOT / "README.md")
SHOWN = [typed for typed in README.commands if typed.output]
OMITTED = re.compile(r"… (?:and )?(\d+) lines?\b")
"""A line that stands for a number of lines. Text after it says what they are."""


def differences(shown: Sequence[str], printed: Sequence[str]) -> list[str]:
    """Return what a page shows of an output that the program does not print."""
    wrong, position = [], 0
    for line in shown:
        if omitted := OMITTED.match(line):
            position += int(omitted[1])
            continue
        found = printed[position] if position < len(printed) else "the end"
        if found != line:
            wrong.append(f"shown: {line}; printed: {found}")
        position += 1
    if position != len(printed):
        wrong.append(f"{position} lines are shown or counted, and {len(printed)} are printed")
    return wrong


def output_of(typed: Typed) -> list[str]:
    words = [word.replace("examples", str(EXAMPLES)) for word in typed.arguments]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == (typed.arguments[0] == "scan"), done.output
    return done.stdout.replace(str(EXAMPLES), "examples").splitlines()


@pytest.mark.parametrize("typed", SHOWN, ids=str)
def test_output_in_the_readme_is_that_of_the_command(typed: Typed) -> None:
    assert differences(typed.output, output_of(typed)) == []


def test_readme_shows_the_summary_of_a_scan() -> None:
    (scan,) = SHOWN
    assert scan.arguments[0] == "scan"
    assert len([line for line in scan.output if not OMITTED.match(line)]) == 8


def prose() -> str:
    """Return the text that a reader sees, without the targets of links."""
    text = re.sub(r"<!--.*?-->", "", README.text, flags=re.DOTALL)
    return re.sub(r"\]\([^)]*\)", "]", text)


@pytest.mark.parametrize("word", ["remedy", "helper", "gate", "policy"])
def test_word_of_podsettle_is_explained_where_it_first_stands(word: str) -> None:
    plural = {"remedy": "remedies", "policy": "policies"}.get(word, f"{word}s")
    found = re.search(rf"(\*?)\b({word}|{plural})\b(\*?)", prose())
    assert found, f"{word} is not in the README"
    assert (found[1], found[3]) == ("*", "*"), prose()[found.start() - 40 : found.end() + 40]


@pytest.mark.parametrize("word", ["covered", "settled", "linger", "wrapper"])
def test_other_words_of_podsettle_do_not_stand_in_the_text(word: str) -> None:
    text = re.sub(r"^```.*?^```$", "", prose(), flags=re.MULTILINE | re.DOTALL)
    assert not re.search(rf"\b{word}\b", text)


def test_readme_is_short_and_begins_with_two_commands() -> None:
    lines = README.text.splitlines()
    assert len(lines) <= 120
    sections = list(README.sections)
    assert sections[:2] == ["Do this first", "Two commands"]
    assert lines.index("## Your cluster") <= 25
    assert re.findall(r"^\| `(make [a-z]+)`", README.sections["Two commands"], re.MULTILINE) == [
        "make run",
        "make test",
    ]


def test_readme_names_the_remedies_that_can_be_exported() -> None:
    (sentence,) = re.findall(r"writes them for (.*?)\.\s", README.text, re.DOTALL)
    named = re.findall(r"`(\w+)`", sentence)
    assert named == [name for name, each in REMEDIES.items() if not isinstance(each.native, str)]


def test_readme_names_every_remedy_and_links_to_the_page_of_every_defect() -> None:
    symptoms = README.sections["Symptoms"]
    for name in REMEDIES:
        assert f"`{name}" in symptoms, name
    linked = {path for path, _ in README.links}
    assert {f"docs/{defect.page}" for defect in DEFECTS} <= linked


def test_every_symptom_says_how_it_was_tested() -> None:
    rows = [line for line in README.sections["Symptoms"].splitlines() if line.startswith("| [")]
    assert len(rows) >= 10
    for row in rows:
        tested = row.split(" | ")[-1]
        assert re.match(r"\[(?:real node|emulated|by hand)\]\(|On a real API server", tested), row
