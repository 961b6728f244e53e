"""The layers in docs/design.md and CONTRIBUTING.md are those that `make lint` checks."""

from __future__ import annotations

import re
import tomllib
from itertools import pairwise
from pathlib import Path

from tests.support.markdown import Page
from tests.support.paths import DOCS, ROOT

LINTER = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
PARTS, CORE = (each["layers"] for each in LINTER["contracts"] if each["type"] == "layers")
LAYERS = [layer.replace("webhook.", "").split(" | ") for layer in PARTS]


def test_diagram_allows_what_the_linter_allows() -> None:
    (text,) = re.findall(
        r"```mermaid\nflowchart LR\n(.*?)```", (DOCS / "design.md").read_text(), re.S
    )
    arrows: dict[str, set[str]] = {}
    for line in text.splitlines():
        groups = [group.strip().split(" & ") for group in line.split("-->")]
        for before, after in pairwise(groups):
            for name in before:
                arrows.setdefault(name, set()).update(after)

    def reached(name: str) -> set[str]:
        direct = arrows.get(name, set())
        return direct.union(*(reached(each) for each in direct))

    for number, layer in enumerate(LAYERS):
        lower = {name for below in LAYERS[number + 1 :] for name in below}
        for name in layer:
            # The second contract.
            assert reached(name) == lower - ({"client"} if name == "server" else set()), name


def test_layers_in_contributing_are_those_of_the_linter() -> None:
    blocks = [block.text for block in Page(ROOT / "CONTRIBUTING.md").blocks if "→" in block.text]
    shown = [
        [set(layer.split(", ")) for layer in " ".join(block.split()).split(" → ")]
        for block in blocks
    ]
    core = [layer.replace(" : ", ", ").split(", ") for layer in CORE]
    assert shown == [[set(layer) for layer in layers] for layers in (LAYERS, core)]


def test_python_files_that_the_two_pages_name_exist() -> None:
    files = [
        f"/{path.relative_to(ROOT)}" for top in ROOT.iterdir() if top.is_dir()
        and not top.name.startswith(".") for path in top.rglob("*.py")
    ]  # fmt: skip
    for page in (DOCS / "design.md", ROOT / "CONTRIBUTING.md"):
        spans = re.findall(r"`([^`\n]+)`", page.read_text())
        named = {word for text in spans for word in re.findall(r"[\w./]+\.py\b", text)}
        named = {name for name in named if not re.search(r"[A-Z]{4}", name)}
        missing = {name for name in named if not any(each.endswith(f"/{name}") for each in files)}
        assert missing == set(), page.name


def test_folders_and_modules_in_the_list_of_the_design_exist() -> None:
    text = next(b.text for b in Page(DOCS / "design.md").blocks if b.text.startswith("webhook/"))
    folders = [ROOT]
    for line in text.splitlines():
        if found := re.match(r"( *)([\w.]+(?:/\w+)*)(/?) ", line):
            depth = len(found[1]) // 2
            if depth >= len(folders) or len(found[1]) > 6:
                continue
            path: Path = folders[depth] / found[2]
            assert path.is_dir() if found[3] else path.with_suffix(".py").exists() or path.exists()
            folders[depth + 1 :] = [path] if found[3] else []
