"""Publish the site: commit it to the branch of the repository's pages. `make publish-site` runs it.

Each version has a directory of its own on the branch, and the others stay as they are. The page at
the root leads to the newest release, or before the first one to the branch that was published.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from docs.site import HTML, ROOT

BRANCH = "gh-pages"
_RELEASE = re.compile(r"(\d+)\.(\d+)\.(\d+)")


def add_version(version: str, html: Path, pages: Path) -> None:
    """Copy a site into the directory of the pages, and list all versions."""
    target = pages / version
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(html, target)
    versions = sorted((path.parent.name for path in pages.glob("*/index.html")), key=_order)
    listed = [{"version": each, "title": each, "aliases": []} for each in versions]
    (pages / "versions.json").write_text(f"{json.dumps(listed, indent=2)}\n", "utf-8")
    redirect = f'<!doctype html><meta http-equiv="refresh" content="0; url={versions[0]}/">\n'
    (pages / "index.html").write_text(redirect, "utf-8")
    (pages / ".nojekyll").touch()


def _order(version: str) -> tuple[int, ...]:
    """Sort the newest release first, and branches last."""
    found = _RELEASE.fullmatch(version)
    return tuple(-int(number) for number in found.groups()) if found else (1,)


def publish(version: str, html: Path, repository: Path) -> None:
    """Add a version to the branch of the pages in the remote `origin` of a clone."""
    with tempfile.TemporaryDirectory(prefix="pages-") as directory:
        pages = Path(directory) / "pages"
        pages.mkdir()
        index = {"GIT_INDEX_FILE": str(Path(directory) / "index"), "GIT_WORK_TREE": str(pages)}

        def git(*arguments: str) -> str:
            done = subprocess.run(
                ["git", *arguments],
                cwd=repository,
                env={**os.environ, "GIT_DIR": str(repository / ".git"), **index},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            return done.stdout.strip()

        parents = []
        if git("ls-remote", "origin", f"refs/heads/{BRANCH}"):
            git("fetch", "--quiet", "--depth=1", "origin", BRANCH)
            parents = ["-p", git("rev-parse", "FETCH_HEAD")]
            git("read-tree", "FETCH_HEAD")
            git("checkout-index", "--all")
        add_version(version, html, pages)
        git("add", "--all", "--force", str(pages))
        tree = git("write-tree")
        commit = git("commit-tree", tree, *parents, "-m", f"site: publish {version}")
        git("push", "--quiet", "origin", f"{commit}:refs/heads/{BRANCH}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Commit the site in dist/site/html to the branch of the pages, and push the branch."""
    parser = argparse.ArgumentParser(prog="python -m docs.publish_site", description=main.__doc__)
    parser.add_argument("--version", required=True, help="or a tag such as v0.1.0, or a branch")
    version = parser.parse_args(arguments).version
    if not re.fullmatch(r"\w[\w.-]*", version):
        sys.exit(f"--version: {version!r} is no name of a directory")
    publish(re.sub(r"^v(?=\d)", "", version), HTML, ROOT)


if __name__ == "__main__":
    main()
