"""The context of a benchmark run, which all parts share."""

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

# Eight connections keep one core busy. The API server keeps up to 25 idle connections.
CONNECTIONS = 8


@dataclass
class Run:
    """The working directory, the profile, the cores and the certificates of a run."""

    directory: Path
    profile: Profile
    cores: PinnedCores = field(default_factory=choose_cores)

    def __post_init__(self) -> None:
        self.certs = certificates(self.directory / "certs")
        self._start = time.monotonic()

    def log_progress(self, text: str) -> None:
        """Print a progress message with the time since the start of the run."""
        print(f"{time.monotonic() - self._start:5.0f} s  {text}", file=sys.stderr, flush=True)

    def write_reviews(self, name: str, reviews: list[bytes]) -> list[Path]:
        """Write reviews to files, for the load generators, and return the paths."""
        return write_files(reviews, self.directory / "reviews" / name)

    def measure_throughput(
        self,
        contenders: Mapping[str, tuple[Server, list[Path]]],
        connections: int = CONNECTIONS,
        rounds: int | None = None,
    ) -> Rows:
        """Load the servers alternately with wrk, and return a row of figures for each.

        `contenders` contains the server and the review files of each row. `rounds` defaults to
        the rounds of the profile.
        """

        def load(name: str, seconds: float) -> dict[str, float]:
            server, reviews = contenders[name]
            core = self.cores.load
            return run_wrk(server, reviews, connections=connections, seconds=seconds, core=core)

        measurements: dict[str, Callable[[], dict[str, float]]] = {
            name: lambda name=name: load(name, self.profile.load_seconds)  # type: ignore[misc]
            for name in contenders
        }

        def warm_up(name: str) -> None:
            if self.profile.warm_up_seconds:
                load(name, self.profile.warm_up_seconds)

        results = interleave(measurements, rounds or self.profile.rounds, warm_up)
        return {name: to_measurements(figures, UNITS) for name, figures in results.items()}
