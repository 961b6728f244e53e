"""Tests that YAML is read as Kubernetes reads it, with line numbers and bounded in size."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.complexity import cpu_ratio, grows_linearly
from webhook.core.preview.document import Document, DocumentError
from webhook.core.preview.yaml_documents import iterate_items, load_documents


def load(text: str | bytes) -> Any:
    (document,) = load_documents(text, "f.yaml")
    return document.value


def refused(text: str | bytes) -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        load_documents(text, "f.yaml")
    return caught.value


CHARACTERS = "a1:-[]{},'\"?|>~#%=!_ \n\té\u2028\U0001f600"
TOKENS = ["&x ", "*x", "<<", "0x_", "---\n", ": ", "- ", "!!int ", "!!bool ", "!!timestamp ", "08"]
YAMLISH = st.lists(st.sampled_from(CHARACTERS) | st.sampled_from(TOKENS), max_size=20).map("".join)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", []),
        ("# only a comment\n", []),
        ("---\n---\n", []),
        ("null\n", []),
        ("a: 1\n---\nb: 2\n", [{"a": 1}, {"b": 2}]),
        ("---\n# first\na: 1\n---\n\n---\n# none\n---\nb: 2 # second\n", [{"a": 1}, {"b": 2}]),
        ("a: 1\n...\n---\nb: 2\n", [{"a": 1}, {"b": 2}]),
        ("--- {a: 1}\n--- [b]\n", [{"a": 1}, ["b"]]),
        ("\ufeffa: 1\n---\n\ufeffb: 2\n---\n\ufeff---\nc: 3\n", [{"a": 1}, {"b": 2}, {"c": 3}]),
    ],
)
def test_every_document_that_is_not_empty_is_read(text: str, values: list[Any]) -> None:
    assert [document.value for document in load_documents(text, "f")] == values
    for encoded in (text.encode(), text.encode("utf-16")):
        assert [document.value for document in load_documents(encoded, "f")] == values


def test_document_is_yielded_before_the_next_one_is_read() -> None:
    documents = iterate_items("a: 1\n---\nb: {", "f")
    assert next(documents)[0].value == {"a": 1}
    with pytest.raises(DocumentError):
        next(documents)


# The meaning of plain scalars to a Kubernetes client: goyaml.v2/resolve.go in kubernetes-sigs/yaml.
SCALARS: list[tuple[str, Any]] = [
    ("2026-08-22", "2026-08-22"),
    ("2026-08-22T10:00:00Z", "2026-08-22T10:00:00Z"),
    ("1:30", "1:30"),
    ("1:30.5", "1:30.5"),
    *((text, True) for text in ("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON")),
    *((text, False) for text in ("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF")),
    *((text, True) for text in ("y", "Y")),
    *((text, False) for text in ("n", "N")),
    *((text, text) for text in ("tRUE", "yES", "oN", "Nope")),
    *((text, None) for text in ("", "~", "null", "Null", "NULL")),
    ("nULL", "nULL"),
    ("0", 0),
    ("+7", 7),
    ("1_000", 1000),
    ("0x1F", 31),
    ("-0x1F", -31),
    ("0b101", 5),
    ("0o17", 15),
    ("017", 15),
    # kubectl writes JSON, which has no fraction then. Helm renders 1000630000 so (helm#12195).
    *(("08", 8), ("1.", 1), ("1e3", 1000), ("1.00063e+09", 1_000_630_000), ("-0.0", 0)),
    *(("1.5", 1.5), ("-.5", -0.5), ("1e-3", 0.001), ("1e21", 1e21)),
    ("1.2.3", "1.2.3"),
    ("500m", "500m"),
    ("1e", "1e"),
    ("1e999", "1e999"),  # Beyond a float64: a Kubernetes client leaves it as it is.
    ("0x", "0x"),
    ("0x_", "0x_"),
    ("0b_", "0b_"),
    ("s0:c1,c2", "s0:c1,c2"),
    ("=", "="),
]


@pytest.mark.parametrize(("text", "value"), SCALARS)
def test_plain_scalar_means_what_it_means_to_kubernetes(text: str, value: Any) -> None:
    found = load(f"a: {text}")["a"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("text", ["true", "yes", "1", "1.5", "null", "2026-08-22", "0x1F"])
@pytest.mark.parametrize("quote", ["'", '"'])
def test_quoted_scalar_is_a_string(text: str, quote: str) -> None:
    assert load(f"a: {quote}{text}{quote}") == {"a": text}


@pytest.mark.parametrize(
    ("written", "key"),
    [
        ("8080", "8080"),
        ("a.b/c", "a.b/c"),
        ("'on'", "on"),
        ("on", "true"),  # sigs.k8s.io/yaml writes a key that is a bool as JSON would.
        ("No", "false"),
        ("y", "true"),
        ("0x1F", "31"),
        ("1.0", "1"),
    ],
)
def test_key_is_a_string_in_the_form_of_json(written: str, key: str) -> None:
    assert load(f"{written}: x") == {key: "x"}


def test_aliases_give_separate_copies() -> None:
    value = load("a: &x {k: [1]}\nb: *x\n")
    assert value == {"a": {"k": [1]}, "b": {"k": [1]}}
    assert value["a"] is not value["b"]


def test_merge_keys_replace_earlier_keys_and_are_replaced_by_later_ones() -> None:
    cases: list[tuple[str, dict[str, int]]] = [
        ("<<: *x\nk: 9", {"k": 9, "l": 2}),
        ("k: 9\n  <<: *x", {"k": 1, "l": 2}),
        ("!!merge <<: *x\nk: 9", {"k": 9, "l": 2}),
        ("<<: [*x, *y]", {"k": 1, "l": 2, "m": 3}),
        ("<<: [*y, *x]", {"k": 7, "l": 2, "m": 3}),
        ("<<: {k: 5}", {"k": 5}),
    ]
    for text, merged in cases:
        bases = "x: &x {k: 1, l: 2}\ny: &y {k: 7, m: 3}\n"
        text = text.replace("\nk:", "\n  k:")
        assert (text, load(f"{bases}z:\n  {text}\n")["z"]) == (text, merged)


@pytest.mark.parametrize("text", ["a: {<<: [1]}", "a: {<<: x}", "x: &x [1]\na: {<<: *x}"])
def test_merge_of_anything_but_a_mapping_is_an_error(text: str) -> None:
    assert "merges mappings only" in refused(text).message


def test_document_knows_the_line_of_each_value() -> None:
    document: Document
    (_, document) = load_documents(
        "x: 1\n---\n# two\na: 1\nb:\n  - c\n  - d:\n      e: 2\n    f: {g: 3}\n", "f"
    )
    lines = {
        ("a",): 4, ("b",): 5, ("b", 0): 6, ("b", 1): 7, ("b", 1, "d", "e"): 8,
        ("b", 1, "f", "g"): 9,
    }  # fmt: skip
    for path, line in lines.items():
        assert document.line(path) == line, path


def test_absent_value_has_the_line_of_the_value_around_it() -> None:
    (document,) = load_documents("\na:\n  b:\n    c: 1\n", "f")
    assert document.line(("a", "b", "x", 0, "y")) == 3
    assert document.line(("z",)) == document.line(()) == 2


TEMPLATE = (
    "a key has to be a plain value; text with '{{' is a template, not YAML: give the template's "
    "output, such as that of helm template"
)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "duplicate key 'a'"),
        ('{"a": 1,\n "a": 2}', 2, "duplicate key 'a'"),
        ("x: 1\n---\na: 1\na: 2\n", 4, "duplicate key 'a'"),
        ("a: &a\n  b: *a\n", 2, "an alias that contains itself"),
        ("&a [*a]", 1, "an alias that contains itself"),
        ("? [a]\n: b\n", 1, "a key has to be a plain value"),
        ("? {a: b}\n: b\n", 1, TEMPLATE),
        ("a:\n  name: {{ .Values.name }}\n", 2, TEMPLATE),
        ("{{- if .Values.on }}\nkind: Pod\n{{- end }}\n", 1, TEMPLATE),
        ("a: b\n c: d\n", 2, "not YAML: "),
        ("a: [1, 2\n", 2, "not YAML: "),
        ("a:\n\t- b\n", 2, "not YAML: found character that cannot start any token"),
        ("a: *nowhere\n", 1, "not YAML: found undefined alias"),
        ('{"a": 1}\n{"b": 2}\n', 2, "not YAML: another document begins, without a line `---`"),
        ("a: !!python/object:os.system x\n", 1, "not YAML: could not determine a constructor"),
    ],
)
def test_error_names_file_line_and_cause(text: str, line: int, message: str) -> None:
    error = refused(text)
    assert (error.source, error.line) == ("f.yaml", line)
    assert error.message.startswith(message)
    assert str(error) == f"f.yaml:{line}: {error.message}"


def test_surrogate_pair_in_json_is_one_character_and_a_lone_surrogate_an_error() -> None:
    assert load('{"a": "\\ud83d\\ude00"}') == {"a": "\U0001f600"}
    refused('{"a": "\\ud83d"}')


def test_character_that_only_json_takes_is_kept_in_json() -> None:
    for character in "\x7f\x85\x9b\ufffe":
        assert load(f'{{"a": "x{character}y"}}') == {"a": f"x{character}y"}


@pytest.mark.parametrize("quoted", ["{}", "'{}'", "|-\n  {}", ">-\n  {}"])
def test_only_double_quoted_strings_have_escapes(quoted: str) -> None:
    assert load("a: " + quoted.format("\\ud83d\\ude00 \\n")) == {"a": "\\ud83d\\ude00 \\n"}


@pytest.mark.parametrize("text", [b"a: \xff\n", b"\xfe\xff\0\0", b"a: \x00", b"a: \x07"])
def test_invalid_text_is_an_error(text: bytes) -> None:
    assert refused(text).message.startswith("not YAML: ")


@pytest.mark.parametrize(
    "text",
    [
        "a: !!int abc", "a: !!float x", "a: !!bool maybe", "a: !!timestamp soon", "a: !!int ''",
        "a: !!int 1e3", "a: !!int 08",
        "a: " + "1" * 5000,
    ],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_scalar_that_does_not_fit_its_tag_is_an_error(text: str) -> None:
    """Python refuses to read a number of 5000 digits. A Kubernetes client overflows."""
    assert refused(text).line == 1


@given(text=st.binary() | YAMLISH)
def test_any_text_raises_nothing_but_document_errors(text: str | bytes) -> None:
    with suppress(DocumentError):
        load_documents(text, "f")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.text("ab/\\\"'~: -#{[]},\n\té\u2028\U0001f600", max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abc/.~-_ 1yn", max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(value=JSON)
def test_any_json_is_read_unchanged(value: Any) -> None:
    documents = load_documents(json.dumps(value), "f")
    assert [document.value for document in documents] == ([] if value is None else [value])


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
