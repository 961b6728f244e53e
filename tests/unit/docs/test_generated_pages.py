"""The documentation says what the code does."""

from __future__ import annotations

import importlib.util
import re
from types import ModuleType

import pytest

from tests.support.paths import DOCS, ROOT


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = _generator()


@pytest.mark.parametrize("name", GENERATOR.PAGES)
def test_reference_pages_are_what_the_code_says(name: str) -> None:
    written = (DOCS / name).read_text(encoding="utf-8")
    assert written == GENERATOR.PAGES[name](), "run `make docs`"


def test_every_make_target_that_the_readme_names_is_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z]+)`|^make ([a-z]+)", (ROOT / "README.md").read_text(),
                           re.MULTILINE))  # fmt: skip
    assert {one or other for one, other in named} <= targets


def test_make_help_lists_every_target() -> None:
    text = (ROOT / "Makefile").read_text()
    public = set(re.findall(r"^\.PHONY: (.+)$", text, re.MULTILINE))
    described = set(re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE))
    assert public == described
