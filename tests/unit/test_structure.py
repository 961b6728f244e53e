"""Tests of the tests: what they import, and which fixtures unit tests ask for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

TESTS = ROOT / "tests"
# Fixtures that start a real part. Those of an API server stand in tests/e2e.
REAL_PARTS = {
    *("cluster", "own_cluster", "settling", "kubelet", "release", "tcp_proxy"),
    *("chromium", "linger", "machine", "registry", "image"),
}


def modules(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.py"))


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_file_imports_from_a_test_module_or_a_conftest() -> None:
    found = [
        f"{path.relative_to(ROOT)} imports {name}: move what is shared to tests/support"
        for path in modules(TESTS)
        for name in imported(parse(path))
        if name.startswith("tests.")
        and any(part == "conftest" or part.startswith("test_") for part in name.split("."))
    ]
    assert not found


def requests_of_real_parts(path: Path) -> Iterator[str]:
    """The functions of a module that ask for a fixture of a real part."""
    for node in ast.walk(parse(path)):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        decorators = " ".join(ast.unparse(each) for each in node.decorator_list)
        if not (node.name.startswith("test_") or "fixture" in decorators):
            continue
        values = {
            name.strip()
            for mark in node.decorator_list
            if isinstance(mark, ast.Call) and "parametrize" in ast.unparse(mark.func)
            for constant in ast.walk(mark.args[0])
            if isinstance(constant, ast.Constant)
            for name in str(constant.value).split(",")
        }
        asked = {argument.arg for argument in node.args.args} - values
        if asked & REAL_PARTS:
            yield f"{path.relative_to(ROOT)}: {node.name}: move it out of tests/unit"


def test_a_unit_test_asks_for_no_fixture_of_a_real_part() -> None:
    assert not [each for path in modules(TESTS / "unit") for each in requests_of_real_parts(path)]
