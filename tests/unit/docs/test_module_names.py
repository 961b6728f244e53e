"""Tests of docs/design.md and CONTRIBUTING.md: each module and file that they name exists."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest

from tests.support.markdown import Page
from tests.support.paths import DOCS, ROOT

DESIGN = Page(DOCS / "design.md")
CONTRIBUTING = Page(ROOT / "CONTRIBUTING.md")
FILES = [
    str(path.relative_to(ROOT))
    for top in ("bench", "docs", "race", "release", "tests", "tools", "webhook")
    for path in (ROOT / top).rglob("*.py")
]
PLACEHOLDER = re.compile(r"[A-Z]{4}")
_ENTRY = re.compile(r"^( *)([a-z_]+/?(?:, [a-z_]+/?)*)(?: {2,}|$)(.*)$")
_BEFORE_COLON = re.compile(r"(?<![\w.-])([a-z_]+/?(?:, [a-z_]+/?)*):")
_DESCRIPTION_COLUMN = 14


def named_modules(tree: str) -> Iterator[PurePosixPath]:
    """Yield each module in a list of folders: in the first column, or before a colon."""
    folders = [PurePosixPath()]
    names: list[PurePosixPath] = []
    for line in tree.splitlines():
        found = _ENTRY.match(line)
        if found and len(found[1]) < _DESCRIPTION_COLUMN:
            depth = len(found[1]) // 2
            parent = folders[depth]
            names = [parent / name for name in found[2].split(", ")]
            yield from names
            is_folder = found[2].endswith("/")
            folders[depth + 1 :] = [names[0]] if is_folder else []
            folder = names[0] if is_folder else parent
        description = found[3] if found and len(found[1]) < _DESCRIPTION_COLUMN else line
        for group in _BEFORE_COLON.findall(description):
            yield from (folder / name for name in group.split(", "))


def test_modules_of_a_list_of_folders_are_found() -> None:
    tree = (
        "top/           the package\n"
        "  part/        all of it. one, two: both; SettlePolicy: no module\n"
        "               three: more\n"
        "    inner/     four: deep\n"
        "  five, six    single modules\n"
    )
    assert [str(path) for path in named_modules(tree)] == [
        *("top", "top/part", "top/part/one", "top/part/two", "top/part/three"),
        *("top/part/inner", "top/part/inner/four", "top/five", "top/six"),
    ]


def test_modules_in_the_list_of_folders_exist() -> None:
    tree = next(block.text for block in DESIGN.blocks if block.text.startswith("webhook/"))
    named = list(named_modules(tree.partition("\ntests/")[0]))
    assert len(named) > 80
    missing = [
        str(path)
        for path in named
        if not (ROOT / path).is_dir() and not (ROOT / f"{path}.py").is_file()
    ]
    assert missing == []


def test_layers_of_the_core_are_those_that_the_linter_checks() -> None:
    (block,) = (b.text for b in CONTRIBUTING.blocks if b.text.startswith("preview →"))
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (core,) = (c for c in contracts["contracts"] if c.get("containers") == ["webhook.core"])
    layers = [layer.replace(" : ", ", ").split(", ") for layer in core["layers"]]
    shown = [set(layer.split(", ")) for layer in " ".join(block.split()).split(" → ")]
    assert shown == [set(layer) for layer in layers]


@pytest.mark.parametrize("page", [DESIGN, CONTRIBUTING], ids=lambda page: page.path.name)
def test_python_files_in_backticks_exist(page: Page) -> None:
    named = {
        word
        for text in re.findall(r"`([^`\n]+)`", page.text)
        for word in re.findall(r"[\w./]+\.py\b", text)
        if not PLACEHOLDER.search(word)
    }
    assert len(named) > 8
    missing = {name for name in named if not any(f"/{each}".endswith(f"/{name}") for each in FILES)}
    assert missing == set()
