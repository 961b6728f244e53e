"""One run of the benchmark: what its parts share."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.closed_loop import UNITS, press
from bench.cpu_pinning import Cores, cores
from bench.interleave import interleave
from bench.measurement import Rows, collect
from bench.profiles import Effort
from bench.reviews import written
from bench.servers import Subject, certificates

CONNECTIONS = 8
"""The API server keeps up to 25; eight keep one core busy."""


@dataclass
class Run:
    """A directory to work in, and how much to do."""

    directory: Path
    effort: Effort
    cores: Cores = field(default_factory=cores)

    def __post_init__(self) -> None:
        self.certs = certificates(self.directory / "certs")
        self._start = time.monotonic()

    def say(self, text: str) -> None:
        """Tell who waits what goes on."""
        print(f"{time.monotonic() - self._start:5.0f} s  {text}", file=sys.stderr, flush=True)

    def files(self, name: str, reviews: list[bytes]) -> list[Path]:
        """Reviews as files, for the load tools."""
        return written(reviews, self.directory / "reviews" / name)

    def press_all(
        self,
        contenders: Mapping[str, tuple[Subject, list[Path]]],
        connections: int = CONNECTIONS,
        rounds: int | None = None,
    ) -> Rows:
        """Load each server in turn, for so many rounds; what each could do."""

        def turn(name: str, seconds: float) -> dict[str, float]:
            subject, reviews = contenders[name]
            core = self.cores.load
            return press(subject, reviews, connections=connections, seconds=seconds, core=core)

        turns: dict[str, Callable[[], dict[str, float]]] = {
            name: lambda name=name: turn(name, self.effort.seconds)  # type: ignore[misc]
            for name in contenders
        }

        def warm_up(name: str) -> None:
            if self.effort.warm_up:
                turn(name, self.effort.warm_up)

        found = interleave(turns, rounds or self.effort.rounds, warm_up)
        return {name: collect(figures, UNITS) for name, figures in found.items()}
