"""The values of labels of metrics that several parts of the server count."""

from __future__ import annotations

from typing import Literal, TypeAlias

PreviewResult: TypeAlias = Literal[
    "answered", "refused", "deadline", "memory", "crashed", "overloaded", "disconnected"
]
"""Values of the label `result` in the metric podsettle_previews_total."""
