"""Another commit of this repository, checked out beside this one."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.paths import ROOT


@contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    """Yield a directory with the files of a commit. It is deleted when the block ends.

    Raises ValueError if the repository does not have the commit.
    """
    with tempfile.TemporaryDirectory(prefix="podsettle-checkout-") as parent:
        tree = Path(parent) / "tree"
        added = _git("worktree", "add", "--detach", str(tree), revision)
        if added.returncode:
            raise ValueError(f"{revision}: {added.stderr.strip()}")
        try:
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
    )
