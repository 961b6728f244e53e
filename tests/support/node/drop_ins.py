"""The drop-ins of a runtime: files of configuration in a directory of their own."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.node.inside import require_inside


class DropIns:
    """The files that a runtime reads at each start.

    They are kept in memory until then, because the node before this one, which uses the same
    directory, removes its files when it ends.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._texts: dict[str, str] = {}

    def add(self, name: str, text: str) -> None:
        """Add a file, or replace it."""
        self._texts[name] = text

    def remove(self, name: str) -> None:
        """Remove a file. Raise KeyError if there is none of this name."""
        del self._texts[name]

    def write(self) -> None:
        """Write the directory with these files only.

        Raise OutsideError outside of a node's namespaces.
        """
        require_inside()
        if self._directory.exists():
            shutil.rmtree(self._directory)
        self._directory.mkdir(parents=True)
        for name, text in self._texts.items():
            (self._directory / name).write_text(text)
