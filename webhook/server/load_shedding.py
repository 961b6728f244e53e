"""The memory that bodies, or answers, may take together: one for reviews, two for previews."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

ROOM = 32 * 1024 * 1024
"""Bytes. With what connections and decoding take beside it, a hundred and fifty senders of the
longest pods at once bring the process to some 240 MB. Previews add up to 150 MB in a process of
their own, 32 MiB of bodies and 32 MiB of answers, and what is kept of images and pull secrets
32 MiB; the chart gives both processes 512 MiB."""


@dataclass(slots=True)
class Room:
    """How many bytes of them are held, and whether that is too much."""

    size: int = ROOM
    held: int = 0

    @property
    def full(self) -> bool:
        """Whether nothing more may be kept."""
        return self.held > self.size

    @contextmanager
    def share(self) -> Iterator[Callable[[int], None]]:
        """What takes so many bytes more; all of them are given back at the end of the block."""
        taken = 0

        def take(count: int) -> None:
            nonlocal taken
            taken += count
            self.held += count

        try:
            yield take
        finally:
            self.held -= taken
