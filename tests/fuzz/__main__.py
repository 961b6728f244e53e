"""python -m tests.fuzz [SECONDS] [TARGET ...]: fuzz for 10 minutes, or as long as it says."""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from time import monotonic

from tests.fuzz import recorded
from tests.fuzz.inputs import Program, is_within, mutated, render
from tests.fuzz.targets import TARGETS
from tests.fuzz.worker import HARD_END_SECONDS, Worker

_DEFAULT_SECONDS = 600
_MAX_POOL = 200


def main() -> int:
    """Exit code 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("seconds", nargs="?", type=float, default=_DEFAULT_SECONDS)
    parser.add_argument("targets", nargs="*", metavar="target", help=", ".join(TARGETS))
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    options = parser.parse_args()
    names = options.targets or list(TARGETS)
    if unknown := set(names) - TARGETS.keys():
        parser.error(f"unknown target {', '.join(sorted(unknown))}; known: {', '.join(TARGETS)}")
    print(f"fuzzing {', '.join(names)} for {options.seconds:g} s with --seed {options.seed}")
    chance = random.Random(options.seed)
    end = monotonic() + options.seconds
    pools = {name: _Pool(name, chance) for name in names}
    found = 0
    while monotonic() < end:
        for pool in pools.values():
            found += pool.run_some(min(end, monotonic() + 2.0))
    for name, pool in pools.items():
        pool.worker.stop()
        print(
            f"{name}: {pool.runs} inputs, at most {pool.worst:.0%} of the time that they may take "
            f"({pool.slowest * 1000:.1f} ms for {pool.slowest_bytes} bytes)"
        )
    print(f"{found} found" + (f", in {recorded.FILE}" if found else ""))
    return int(found > 0)


class _Pool:
    """One target, and the programs that its inputs are made of."""

    def __init__(self, name: str, chance: random.Random) -> None:
        self.name = name
        self.target = TARGETS[name]
        self.chance = chance
        self.programs = list(self.target.seeds)
        self.worker = Worker(name)
        self.runs = 0
        self.worst = 0.0
        self.slowest = 0.0
        self.slowest_bytes = 0
        self.seen: Counter[str] = Counter()

    def run_some(self, end: float) -> int:
        """Try inputs for a while; how many were found to take too long, or to raise."""
        found = 0
        while monotonic() < end:
            program = self.programs[self.chance.randrange(len(self.programs))]
            if self.runs >= len(self.target.seeds):
                program = mutated(program, self.target.seeds, self.target.words, self.chance)
            if program and is_within(program, self.target.max_bytes):
                found += self._try(program)
        return found

    def _try(self, program: Program) -> int:
        self.runs += 1
        body = render(program)
        allowed = min(self.target.allowed_seconds(body), HARD_END_SECONDS)
        outcome = self.worker.ask(body)
        if isinstance(outcome, float) and outcome > allowed:
            # A busy machine may have slowed it down.
            again = [self.worker.ask(body) for _ in range(3)]
            outcome = min([outcome, *(each for each in again if isinstance(each, float))])
        if isinstance(outcome, str):
            return self._report(program, outcome)
        if outcome / allowed > self.worst:
            self.worst, self.slowest, self.slowest_bytes = outcome / allowed, outcome, len(body)
            self.programs.append(program)
            if len(self.programs) > _MAX_POOL:
                del self.programs[len(self.target.seeds)]
        elif outcome / allowed > self.worst * 0.5 and self.chance.random() < 0.2:
            self.programs.append(program)
        if outcome > allowed:
            return self._report(
                program, f"{outcome * 1000:.0f} ms, not {allowed * 1000:.0f}, for {len(body)} bytes"
            )
        return 0

    def _report(self, program: Program, why: str) -> int:
        kind = why.partition(":")[0] if ":" in why else "slow"
        self.seen[kind] += 1
        if self.seen[kind] > 3:
            return 0
        small = self._shortened(program, kind)
        print(f"{self.name}: {why}\n  {json.dumps([list(piece) for piece in small])}", flush=True)
        recorded.add(self.name, small, why)
        return 1

    def _shortened(self, program: Program, kind: str) -> Program:
        """The program without the pieces that it does not need to be found."""
        at = 0
        while at < len(program) and len(program) > 1:
            shorter = program[:at] + program[at + 1 :]
            if self._is_found(shorter, kind):
                program = shorter
            else:
                at += 1
        return program

    def _is_found(self, program: Program, kind: str) -> bool:
        body = render(program)
        outcome = self.worker.ask(body)
        if isinstance(outcome, str):
            return outcome.partition(":")[0] == kind
        return kind == "slow" and outcome > self.target.allowed_seconds(body)


if __name__ == "__main__":
    sys.exit(main())
