"""The interface of a container runtime that a node can run."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Runtime(Protocol):
    """A container runtime that serves CRI."""

    @property
    def name(self) -> str:
        """The name before `://` in a node's `containerRuntimeVersion`."""

    @property
    def version(self) -> str:
        """The release, such as `2.4.2`."""

    @property
    def socket(self) -> Path:
        """Where it serves CRI."""

    @property
    def log(self) -> Path:
        """The output of all its starts."""

    def start(self) -> None:
        """Start the runtime. It answers on return."""

    def stop(self) -> None:
        """Stop the runtime. Its containers go on."""

    def add_drop_in(self, name: str, text: str) -> None:
        """Add a file of configuration. The next start writes it."""
