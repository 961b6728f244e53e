"""The list of Python packages in THIRD_PARTY_NOTICES, from the locked packages' own metadata."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import metadata
from pathlib import Path

_LOCKED = Path(__file__).parents[1] / "requirements/run.txt"
_SECTION = re.compile(r"(?<=\nPython packages\n---------------\n\n).*?(?=\nZig\n---\n)", re.DOTALL)
_MAX_LICENCE_CHARACTERS = 60
"""A longer text in the field License is the licence itself, and not its name."""


def fill_region(text: str) -> str:
    """Return the notices with the packages that images and executables contain."""
    return _SECTION.sub(lambda _: "".join(f"{line}\n" for line in _lines()), text)


def _lines() -> Iterator[str]:
    packages = re.findall(r"^([\w.-]+)==(\S+)", _LOCKED.read_text(encoding="utf-8"), re.MULTILINE)
    for name, version in packages:
        yield f"{f'{name} {version}':<30} {licence_of(name)}"


def licence_of(package: str) -> str:
    """Return the name of a package's licence. Raises ValueError if its metadata has none."""
    fields = metadata(package)
    for field in ("License-Expression", "License"):
        for text in fields.get_all(field) or ():
            if 0 < len(text) <= _MAX_LICENCE_CHARACTERS:
                return str(text)
    classifiers = fields.get_all("Classifier") or []
    licences = [text.split(" :: ")[-1] for text in classifiers if text.startswith("License ::")]
    if not licences:
        raise ValueError(f"{package} names no licence in its metadata")
    return ", ".join(licences)
