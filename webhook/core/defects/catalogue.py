"""The catalogue of defects: the files `webhook/core/defects/*.yaml`, which the package contains.

To add a defect, copy the file that is most like it (`defect.py` describes the keys), name it by its
id, and add the releases before and with each fix to `tests/unit/core/defects/test_catalogue.py`.
`make docs` writes docs/defects.md. If a fix is backported, add it to `fixed`, the oldest line
first. If a new line contains the fix, raise `newest`.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable

import yaml

from webhook.core.defects.defect import Defect

if not yaml.__with_libyaml__:  # As pip builds it where no wheel fits. It is 20 times as slow.
    raise ImportError("PyYAML is without libyaml; upgrade it, or install libyaml's headers first")


def _load(file: Traversable) -> Defect:
    # With the base loader, every scalar is text: 2026-11-21 is no date, and 1.34 no number.
    return Defect.model_validate(yaml.load(file.read_bytes(), yaml.CBaseLoader))  # noqa: S506


DEFECTS: tuple[Defect, ...] = tuple(
    _load(file)
    for file in sorted(files(__package__).iterdir(), key=lambda file: file.name)
    if file.name.endswith(".yaml")
)
"""Every known defect, in the order of the files' names."""
