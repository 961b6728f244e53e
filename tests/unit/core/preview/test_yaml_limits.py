"""Tests of the limits for aliases, nesting, time and memory when YAML is read."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.support.complexity import cpu_ratio, grows_linearly
from tests.support.yaml_texts import load, refused
from webhook.core.preview.document import DocumentError
from webhook.core.preview.yaml_documents import load_documents


def billion_laughs(line: str, levels: int) -> str:
    """Return a text in which each level refers ten times to the level before it."""
    text = "l0: &l0 {k: v}\n"
    for level in range(1, levels + 1):
        text += line.format(new=f"l{level}", old=f"*l{level - 1}")
    return text


@pytest.mark.parametrize(
    "line",
    [
        "{new}: &{new} [" + ", ".join(["{old}"] * 10) + "]\n",
        "{new}: &{new} {{" + ", ".join(f"k{n}: {{old}}" for n in range(10)) + "}}\n",
    ],
    ids=["lists", "mappings"],
)
def test_multiplying_aliases_are_an_error(line: str) -> None:
    assert "aliases and merge keys copy" in refused(billion_laughs(line, 6)).message


def test_many_aliases_of_a_long_text_are_an_error() -> None:
    text = f"a: &a {'x' * 50_000}\n"
    assert len(load(text + "b: [*a, *a, *a, *a, *a]")["b"]) == 5
    assert "aliases and merge keys copy" in refused(text + "b: [*a, *a, *a, *a, *a, *a]").message
    key = f"a: &a {{{'x' * 1_000}: 1}}\n"
    assert "aliases and merge keys copy" in refused(key + f"b: [{'*a, ' * 300}]").message


def test_copies_by_aliases_are_counted_over_all_documents_of_a_text() -> None:
    one = f"a: &a [{'1, ' * 100}]\nb: [{'*a, ' * 60}]\n"
    assert load(one)["b"][59] == [1] * 100
    assert "aliases and merge keys copy" in refused(f"{one}---\n{one}").message


def test_anchor_may_be_redefined() -> None:
    assert load("[&a 1, *a, &a 2, *a]") == [1, 1, 2, 2]
    assert load("&a [&a 1, *a]") == [1, 1]


def test_nested_anchors_are_counted_once_each() -> None:
    def nested(opening: str) -> str:
        levels = "".join(opening.format(level) for level in range(190))
        return f"{levels}{'1,' * 20_000}{']' * 190}"

    assert cpu_ratio(load, nested("&a{} ["), nested("[")) < 3


def test_keys_of_all_merges_together_are_bounded() -> None:
    merge = "{<<: {" + ", ".join(f"k{number}: 1" for number in range(6_000)) + "}}"
    assert len(load(merge)) == 6_000
    assert "aliases and merge keys copy" in refused(f"[{merge}, {merge}]").message


MERGED = "a: &a {" + ", ".join(f"k{number}: 1" for number in range(3_000)) + "}\nb: &b {k: 1}\n"


@pytest.mark.parametrize(
    "make",
    [
        lambda size: "[" * 190 + "1," * size + "]" * 190,
        lambda size: f"{MERGED}c: {{<<: [*a, {'*b, ' * min(size, 1_500)}]}}\n" + " " * size,
        lambda size: "[" * 190 + "&a 1" + ", *a" * min(size, 9_000) + "]" * 190 + " " * size,
        lambda size: "".join(f"%TAG !{n}! x\n" for n in range(size)) + "--- 1",
        lambda size: f"a{size}: 1\n" + "".join(f"k{n}: {{a: 1}}\n" for n in range(size)),
        lambda size: "---\n1\n" * size,
        lambda size: '"' + "\\ud83d\\ude00" * size + '"',
    ],
    ids=["depth", "merges", "aliases", "directives", "keys", "documents", "pairs"],
)
def test_reading_time_grows_linearly_with_the_text(make: Callable[[int], str]) -> None:
    def read(text: str) -> None:
        with suppress(DocumentError):
            load_documents(text, "f")

    assert grows_linearly(make, read)


def test_memory_for_lines_grows_linearly_with_the_text() -> None:
    flat, deep = (_peak_bytes("[" * depth + "1," * 20_000 + "]" * depth) for depth in (1, 190))
    assert deep < 2 * flat


def _peak_bytes(text: str) -> int:
    tracemalloc.start()
    try:
        load_documents(text, "f")
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("end", ["\n", "\r", "\u2028"])
def test_too_many_directives_are_an_error(end: str) -> None:
    assert load(f"%TAG !e! tag:x,{end}--- 1") == 1
    assert refused(f"%TAG !e! tag:x,{end}" * 17 + "--- 1").message == (
        "more than 16 lines begin with '%'"
    )
    assert load("a: |\n" + "  %x\n" * 20) == {"a": "%x\n" * 20}


def test_aliases_that_nest_too_deeply_are_an_error() -> None:
    text = f"a0: &a0 {'[' * 150}{']' * 150}\na1: {'[' * 100}*a0{']' * 100}\n"
    assert refused(text).message == "nested too deeply"


def test_repeated_merges_do_not_multiply_values() -> None:
    line = "{new}: &{new} {{<<: [" + ", ".join(["{old}"] * 10) + "]}}\n"
    assert load(billion_laughs(line, 6))["l6"] == {"k": "v"}
    assert load("a: &a {k: 1}\nb: {<<: *a, <<: *a}")["b"] == {"k": 1}
    assert refused("a: &a {k: 1}\nb: {<<: *a, k: 2, k: 3}").message == "duplicate key 'k'"


@pytest.mark.parametrize(
    "text",
    ["[" * 5000 + "]" * 5000, "{a: " * 5000 + "}" * 5000, "- " * 5000 + "x"],
    ids=["lists", "mappings", "blocks"],
)
def test_deep_nesting_is_an_error(text: str) -> None:
    assert refused(text).message == "nested too deeply"


@pytest.mark.parametrize("text", ["[", "{a: ", "- ", "- - ? "])
def test_extreme_nesting_does_not_crash_the_process(text: str) -> None:
    """Runs in a separate process, because an overflow of the C stack kills the process."""
    script = (
        "from webhook.core.preview.document import DocumentError\n"
        "from webhook.core.preview.yaml_documents import load_documents\n"
        f"try: load_documents({text!r} * (1_000_000 // {len(text)}), 'f')\n"
        "except DocumentError: print('refused')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "refused\n")
