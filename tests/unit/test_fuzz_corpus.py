"""The inputs of both fuzzers are replayed: time in proportion to their length, and no defect."""

from __future__ import annotations

import random

import pytest

from tests.fuzz import recorded
from tests.fuzz.guided.invariants import INVARIANTS
from tests.fuzz.inputs import Piece, mutated, render
from tests.fuzz.targets import TARGETS
from tests.support.complexity import grows_linearly
from tests.support.paths import FUZZ_CORPUS

KNOWN = recorded.load()


@pytest.mark.parametrize("name", TARGETS)
def test_mutations_of_the_seeds_raise_nothing(name: str) -> None:
    target = TARGETS[name]
    chance = random.Random(7)
    for program in target.seeds:
        target.run(render(program))
        for _ in range(5):
            small = mutated(program, target.seeds, target.words, chance)
            if sum(len(piece.text) * piece.times for piece in small) < 20_000:
                target.run(render(small))


@pytest.mark.parametrize(
    ("name", "program"), KNOWN, ids=[f"{name}-{n}" for n, (name, _) in enumerate(KNOWN)]
)
def test_recorded_inputs_take_linear_time(name: str, program: tuple[Piece, ...]) -> None:
    target = TARGETS[name]
    target.run(render(program))
    few = tuple(Piece(piece.text, min(piece.times, 20)) for piece in program)
    assert grows_linearly(lambda size: render(few, size), target.run, 1, 2_000)


@pytest.mark.parametrize("name", INVARIANTS)
def test_recorded_inputs_keep_the_invariants(name: str) -> None:
    files = sorted((FUZZ_CORPUS / name).iterdir())
    assert files
    for path in files:
        INVARIANTS[name](path.read_bytes())
