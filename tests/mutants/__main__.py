"""python -m tests.mutants [COUNT]: compare decisions on mutants with the cache and without."""

from __future__ import annotations

import argparse
import random
import sys

from tests.mutants.comparison import Comparison

_DEFAULT_COUNT = 100_000


def main() -> int:
    """Return exit code 1 for a difference, or for too few hits to find one."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("count", nargs="?", type=int, default=_DEFAULT_COUNT)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    options = parser.parse_args()
    print(f"comparing {options.count} mutants with --seed {options.seed}", flush=True)
    report = Comparison(options.seed).run(options.count)
    for difference in report.differences[:5]:
        print(difference)
    print(report)
    print(", ".join(f"{remedy} {pods}" for remedy, pods in report.by_remedy.most_common()))
    if not report.shows_something:
        print("too few cache hits, or a remedy that changed no pod: the comparison shows nothing")
    return int(bool(report.differences) or not report.shows_something)


if __name__ == "__main__":
    sys.exit(main())
