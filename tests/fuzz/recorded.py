"""The inputs that were found, as programs: a few lines of JSON each, however long the input."""

from __future__ import annotations

import json

from tests.fuzz.inputs import Piece, Program
from tests.support.paths import DATA

FILE = DATA / "fuzz.json"


def load() -> list[tuple[str, Program]]:
    """Each input with the name of its target."""
    return [
        (entry["target"], tuple(Piece(*piece) for piece in entry["pieces"]))
        for entry in json.loads(FILE.read_text())
    ]


def add(target: str, program: Program, why: str) -> None:
    """Keep an input that was found."""
    entries = json.loads(FILE.read_text()) if FILE.exists() else []
    entry = {"target": target, "found": why, "pieces": [list(piece) for piece in program]}
    if entry["pieces"] not in [known["pieces"] for known in entries]:
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(json.dumps([*entries, entry], indent=1) + "\n")
