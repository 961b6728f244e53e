"""Tests of the site: its navigation, and the diagram of the layers."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from docs.site import START, files_of_site, navigation
from tests.support.markdown import ALL, Page
from tests.support.paths import DOCS, ROOT


def pages_of(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            (below,) = entry.values()
            yield from pages_of(below if isinstance(below, list) else [below])


def test_navigation_has_each_page_once_below_the_four_ways_in() -> None:
    files = files_of_site()
    assert {path.resolve() for path in ALL} <= {ROOT / path for path in files}
    entries = navigation(files)
    assert [title for entry in entries for title in entry] == [
        START,
        *Page(DOCS / "README.md").sections,
    ]
    listed = list(pages_of(entries))
    assert sorted(listed) == sorted(str(path) for path in files if path.suffix == ".md")


def test_diagram_of_the_layers_allows_what_the_linter_allows() -> None:
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

    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = [
        [name.removeprefix("webhook.") for name in layer.split(" | ")]
        for layer in contracts["contracts"][0]["layers"]
    ]
    for number, layer in enumerate(layers):
        lower = {name for below in layers[number + 1 :] for name in below}
        for name in layer:
            # The second contract.
            assert reached(name) == lower - ({"client"} if name == "server" else set()), name
