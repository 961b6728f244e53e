"""Tests of the words in code, pages, charts and test names.

The word list holds what a reader has to read twice: persons for machines, and idioms.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

DENIED = re.compile(
    r"\b(?:whoever|nobody|somebody|anybody|patience|hangs? up|anew|as ever|what is there"
    r"|by itself to)\b",
    re.IGNORECASE,
)
TEXTS = {".c", ".h", ".html", ".json", ".md", ".py", ".tpl", ".txt", ".yaml"}


def files(*names: str) -> Iterator[Path]:
    """The files with these names, and those in directories with these names."""
    for name in names:
        path = ROOT / name
        for found in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if found.is_file() and found.suffix in TEXTS:
                yield found


def denied_words(text: str) -> Iterator[tuple[int, str]]:
    """The number of a line and a denied word in it, for each such word."""
    for number, line in enumerate(text.splitlines(), start=1):
        for match in DENIED.finditer(line):
            yield number, match.group()


def test_texts_contain_no_denied_word() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {word}"
        for path in files("webhook", "race", "docs", "charts", "README.md", "CONTRIBUTING.md")
        for number, word in denied_words(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


def test_names_of_tests_contain_no_denied_word() -> None:
    found = []
    for path in files("tests"):
        if path.suffix != ".py" or not path.name.startswith("test_"):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = [(1, path.stem)]
        names += [
            (node.lineno, node.name)
            for node in ast.walk(tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        ]
        found += [
            f"{path.relative_to(ROOT)}:{number}: {word} in {name}"
            for number, name in names
            if name.startswith("test_")
            for _, word in denied_words(name.replace("_", " "))
        ]
    assert not found, "\n".join(found)
