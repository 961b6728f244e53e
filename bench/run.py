"""One run of the benchmark: what its parts share."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.closed_loop import UNITS, run_wrk
from bench.cpu_pinning import PinnedCores, choose_cores
from bench.interleave import interleave
from bench.measurement import Rows, to_measurements
from bench.profiles import Profile
from bench.reviews import write_files
from bench.servers import Server, certificates

CONNECTIONS = 8
"""The API server keeps up to 25; eight keep one core busy."""


@dataclass
class Run:
    """A directory to work in, and how much to do."""

    directory: Path
    profile: Profile
    cores: PinnedCores = field(default_factory=choose_cores)

    def __post_init__(self) -> None:
        self.certs = certificates(self.directory / "certs")
        self._start = time.monotonic()

    def log_progress(self, text: str) -> None:
        """Tell who waits what goes on."""
        print(f"{time.monotonic() - self._start:5.0f} s  {text}", file=sys.stderr, flush=True)

    def write_reviews(self, name: str, reviews: list[bytes]) -> list[Path]:
        """Reviews as files, for the load tools."""
        return write_files(reviews, self.directory / "reviews" / name)

    def measure_throughput(
        self,
        contenders: Mapping[str, tuple[Server, list[Path]]],
        connections: int = CONNECTIONS,
        rounds: int | None = None,
    ) -> Rows:
        """Load each server in turn, for so many rounds; what each could do."""

        def turn(name: str, seconds: float) -> dict[str, float]:
            server, reviews = contenders[name]
            core = self.cores.load
            return run_wrk(server, reviews, connections=connections, seconds=seconds, core=core)

        turns: dict[str, Callable[[], dict[str, float]]] = {
            name: lambda name=name: turn(name, self.profile.seconds)  # type: ignore[misc]
            for name in contenders
        }

        def warm_up(name: str) -> None:
            if self.profile.warm_up:
                turn(name, self.profile.warm_up)

        found = interleave(turns, rounds or self.profile.rounds, warm_up)
        return {name: to_measurements(figures, UNITS) for name, figures in found.items()}
