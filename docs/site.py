"""The site: the pages of the repository as HTML, made by Zensical. `make site` runs it.

The source of the site is a copy of the README and of everything that its links lead to, at the same
paths. So all links hold as they do in the repository. A warning, such as of a broken link, is an
error.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
THEME = ROOT / "docs/theme"
INDEX = Path("docs/README.md")
START = "Start"
_FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#\s:]+)[#)]")


def links_of(page: Path, text: str) -> list[Path]:
    """Return the files to which a part of a page links, by their paths in the repository."""
    found = _LINK.findall(_FENCE.sub("", text))
    return [(ROOT / page.parent / link).resolve().relative_to(ROOT) for link in found]


def files_of_site() -> list[Path]:
    """Return the README, and every file that can be reached from it."""
    waiting, found = [Path("README.md")], set()
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += links_of(path, (ROOT / path).read_text()) if path.suffix == ".md" else []
    return sorted(found)


def navigation(files: list[Path]) -> list[dict[str, list[str]]]:
    """Return the pages of each section of the index of the documentation.

    A page that several sections list is in the first of them. Pages that the index does not list
    are in the section of the README of their directory.
    """
    titles = dict.fromkeys((Path("README.md"), INDEX), START)
    for section in re.split(r"^## ", (ROOT / INDEX).read_text(), flags=re.MULTILINE)[1:]:
        for page in links_of(INDEX, section):
            titles.setdefault(page, section.partition("\n")[0])
    entries: dict[str, list[str]] = {title: [] for title in titles.values()}
    for page in [*titles, *(path for path in files if path not in titles)]:
        if page.suffix == ".md":
            beside = titles.get(page.with_name("README.md"), START)
            entries[titles.get(page, beside)].append(str(page))
    return [{title: pages} for title, pages in entries.items()]


def main() -> int:
    """Write the site to dist/site/html. REPOSITORY in the environment is the URL to link to."""
    out = ROOT / "dist/site"
    shutil.rmtree(out, ignore_errors=True)
    files = files_of_site()
    for path in files:
        (out / "source" / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, out / "source" / path)
    # An import of the package would need its dependencies.
    script = distribution("mermaidx").locate_file("mermaidx/assets/mermaid.js")
    shutil.copyfile(str(script), out / "source/mermaid.js")
    shutil.copyfile(THEME / "site.css", out / "source/site.css")
    shutil.copytree(THEME, out / "theme")
    settings = yaml.safe_load((THEME / "mkdocs.yml").read_text()) | {"nav": navigation(files)}
    settings |= {"repo_url": os.environ["REPOSITORY"]} if os.environ.get("REPOSITORY") else {}
    (out / "mkdocs.yml").write_text(yaml.safe_dump(settings, sort_keys=False))
    command = ("-m", "zensical", "build", "--strict", "--config-file", str(out / "mkdocs.yml"))
    return subprocess.run([sys.executable, *command], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
