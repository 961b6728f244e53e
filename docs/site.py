"""The site: the pages of the repository as HTML, made by Zensical. `make site` runs it.

The source of the site is a copy of the README and of everything that its links lead to, at the same
paths. So all links hold as they do in the repository. The navigation is that of docs/README.md.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import shutil
import subprocess
import sys
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
OUT = ROOT / "dist/site"
HTML = OUT / "html"
INDEX = Path("docs/README.md")
START = "Start"
_FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#\s:]+)[#)]")
_THEME_FILES = ROOT / "docs/theme"
_SCRIPT = "mermaid.js"

SETTINGS = {
    "site_name": "podsettle",
    "docs_dir": "source",
    "site_dir": HTML.name,
    "extra_css": ["site.css"],
    "extra": {"version": {"provider": "mike"}},  # The form of versions.json.
}
THEME = {
    "name": "material",
    "custom_dir": str(_THEME_FILES),
    "font": False,  # Fonts of the reader's system: no page asks another server for one.
    "features": [
        "content.code.copy",
        "navigation.footer",
        "navigation.indexes",
        "navigation.sections",
        "navigation.tabs",
        "navigation.top",
        "search.highlight",
    ],
    "palette": [
        {
            "media": "(prefers-color-scheme: light)",
            "scheme": "default",
            "toggle": {"icon": "lucide/sun", "name": "Switch to dark colours"},
        },
        {
            "media": "(prefers-color-scheme: dark)",
            "scheme": "slate",
            "toggle": {"icon": "lucide/moon", "name": "Switch to light colours"},
        },
    ],
}


def links_of(page: Path) -> list[Path]:
    """Return the files to which a page links, once each, by their paths in the repository."""
    prose = _FENCE.sub("", (ROOT / page).read_text("utf-8"))
    found = ((ROOT / page.parent / link).resolve() for link in _LINK.findall(prose))
    return list(dict.fromkeys(path.relative_to(ROOT) for path in found))


def files_of_site() -> list[Path]:
    """Return the README, and every file that can be reached from it."""
    waiting, found = [Path("README.md")], dict[Path, None]()
    while waiting:
        path = waiting.pop()
        if path not in found:
            found[path] = None
            waiting += links_of(path) if path.suffix == ".md" else []
    return sorted(found)


def title_of(page: Path) -> str:
    """Return the heading of a page."""
    found = re.search(r"^# (.+)$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    if found is None:
        raise ValueError(f"{page}: there is no heading")
    return found[1].replace("`", "")


def navigation(pages: Sequence[Path]) -> list[dict[str, Any]]:
    """Return the sections of the index of the documentation, each with the pages that it lists.

    A page that several sections list is in the first of them. The pages that the index does not
    list are below the README of their directory.
    """
    index = (ROOT / INDEX).read_text("utf-8")
    titles = re.findall(r"^## (.+)$", index, re.MULTILINE)
    texts = re.split(r"^## .+$", index, flags=re.MULTILINE)
    listed = {Path("README.md"): START, INDEX: START}
    for title, text in zip([START, *titles], texts, strict=True):
        for link in _LINK.findall(text):
            listed.setdefault((ROOT / INDEX.parent / link).resolve().relative_to(ROOT), title)
    entries = []
    for title in (START, *titles):
        section = [page for page, of in listed.items() if of == title and page.suffix == ".md"]
        entries.append({title: [_entry(page, pages, listed) for page in section]})
    return entries


def _entry(page: Path, pages: Sequence[Path], listed: Container[Path]) -> dict[str, Any]:
    below = [each for each in pages if each.suffix == ".md" and each not in listed]
    below = [each for each in below if page.name == "README.md" and each.parent == page.parent]
    if not below:
        return {title_of(page): str(page)}
    return {title_of(page): [str(page), *({title_of(each): str(each)} for each in below)]}


def write_source(repository: str | None) -> None:
    """Write the pages, the script for diagrams, and the configuration of Zensical."""
    shutil.rmtree(OUT, ignore_errors=True)
    source = OUT / "source"
    files = files_of_site()
    for path in files:
        (source / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, source / path)
    package = importlib.util.find_spec("mermaidx")
    if package is None or package.origin is None:
        raise FileNotFoundError("mermaidx is not installed")
    shutil.copyfile(Path(package.origin).parent / "assets" / _SCRIPT, source / _SCRIPT)
    shutil.copyfile(_THEME_FILES / "site.css", source / "site.css")
    of_repository = {"repo_url": repository} if repository else {}
    settings = {**SETTINGS, **of_repository, "theme": THEME, "nav": navigation(files)}
    (OUT / "mkdocs.yml").write_text(yaml.safe_dump(settings, sort_keys=False), "utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the site to dist/site/html. A warning, such as of a broken link, is an error."""
    parser = argparse.ArgumentParser(prog="python -m docs.site", description=main.__doc__)
    parser.add_argument("--repository", metavar="URL", help="to link to in the header")
    write_source(parser.parse_args(arguments).repository)
    command = (sys.executable, "-m", "zensical", "build", "--strict", "--config-file")
    return subprocess.run([*command, str(OUT / "mkdocs.yml")], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
