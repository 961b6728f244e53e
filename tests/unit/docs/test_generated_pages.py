"""Tests that the generated pages and the Makefile match the code."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.markdown import ALL
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
def test_reference_pages_match_the_code(name: str) -> None:
    written = (DOCS / name).read_text(encoding="utf-8")
    assert written == GENERATOR.PAGES[name](), "run `make docs`"


@pytest.mark.parametrize("page", ALL, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_make_target_that_a_page_names_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"(?:`|^\$ |^)make ([a-z-]+)", text, re.MULTILINE)) <= targets


def test_make_help_lists_every_target() -> None:
    text = (ROOT / "Makefile").read_text()
    public = set(re.findall(r"^\.PHONY: (.+)$", text, re.MULTILINE))
    described = set(re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE))
    assert public == described
