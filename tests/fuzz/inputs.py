"""Inputs as pieces with repetitions, and how they are mutated."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

_MAX_PIECES = 24
_COUNTS = (1, 2, 10, 100, 190, 1_000, 10_000, 50_000)


class Piece(NamedTuple):
    """A text, so many times in a row. If it is repeated, `{}` is the number of the repetition."""

    text: str
    times: int = 1


Program: TypeAlias = tuple[Piece, ...]


def render(program: Program, scale: int = 1) -> bytes:
    """The input that a program stands for, what is repeated `scale` times as often.

    Texts are written as UTF-8; the characters U+DC80 to U+DCFF stand for bytes that are not.
    """
    return "".join(_rendered(piece, scale) for piece in program).encode("utf-8", "surrogateescape")


def _rendered(piece: Piece, scale: int) -> str:
    times = piece.times * scale if piece.times > 1 else 1
    # The texts around what is repeated are JSON, in which `{}` is an empty object.
    if piece.times == 1 or "{}" not in piece.text:
        return piece.text * times
    return "".join(piece.text.replace("{}", str(number)) for number in range(times))


def is_within(program: Program, max_bytes: int) -> bool:
    """Whether its input is probably no longer than so many bytes."""
    return sum((len(piece.text) + 4) * piece.times for piece in program) <= max_bytes


def mutated(
    program: Program, seeds: Sequence[Program], words: Sequence[str], chance: random.Random
) -> Program:
    """A program with a few changes."""
    pieces = list(program)
    for _ in range(chance.choice((1, 1, 2, 3, 5))):
        _mutate(pieces, seeds, words, chance)
    return tuple(pieces[:_MAX_PIECES])


def _mutate(
    pieces: list[Piece], seeds: Sequence[Program], words: Sequence[str], chance: random.Random
) -> None:
    at = chance.randrange(len(pieces)) if pieces else 0
    choice = chance.randrange(9)
    if not pieces or choice == 0:
        pieces.insert(at, Piece(chance.choice(words), chance.choice(_COUNTS)))
    elif choice == 1:
        pieces[at] = Piece(pieces[at].text, chance.choice(_COUNTS))
    elif choice == 2:
        pieces[at] = Piece(pieces[at].text, max(1, pieces[at].times * 2 - chance.randrange(2)))
    elif choice == 3:
        del pieces[at]
    elif choice == 4:
        pieces.insert(at, chance.choice(pieces))
    elif choice == 5:
        # Inside a piece, where its parts stay what they are.
        text, count = pieces[at]
        cut = chance.randrange(len(text) + 1)
        inner = Piece(chance.choice(words), chance.choice(_COUNTS))
        if count == 1:
            pieces[at : at + 1] = [Piece(text[:cut]), inner, Piece(text[cut:])]
        else:
            pieces[at] = Piece(text[:cut] + inner.text + text[cut:], count)
    elif choice == 6:
        other = chance.choice(seeds)
        start = chance.randrange(len(other))
        pieces[at:at] = other[start : start + chance.randrange(1, 4)]
    elif choice == 7:
        text, count = pieces[at]
        old, new = chance.sample(words, 2)
        pieces[at] = Piece(text.replace(old, new), count)
    else:
        # Nested: an opening and a closing part, as often as each other.
        count = chance.choice(_COUNTS)
        opening, closing = chance.choice(
            (("[", "]"), ("{a: ", "}"), ('{"a":', "}"), ("&a{} [", "]"))
        )
        pieces[at : at + 1] = [Piece(opening, count), pieces[at], Piece(closing, count)]
