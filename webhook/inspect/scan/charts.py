"""The pictures in the HTML report of a scan, as SVG: a bar chart and a timeline."""

from __future__ import annotations

from datetime import timedelta
from html import escape

from webhook.inspect.scan.model import DefectNodes, SymptomReport
from webhook.inspect.scan.text import format_time

STATUSES = (
    ("affected", "affected"),
    ("partly", "partly affected"),
    ("unverified", "not affected, unverified"),
    ("free", "not affected"),
)
"""The classes of the style sheet, with the words of the catalogue, in the order of the bars."""

_WIDTH, _LABEL_WIDTH, _ROW_HEIGHT = 960, 250, 34
_MAX_COLUMN_WIDTH = 24
"""Lengths in pictures, in units that the browser scales to the width of the page."""


def counts(defect: DefectNodes) -> tuple[int, int, int, int]:
    """Return the numbers of nodes in the order of STATUSES."""
    return defect.affected, defect.partly, defect.unverified, defect.not_affected


def bar_chart(defects: tuple[DefectNodes, ...]) -> str:
    """Return a bar for each defect. Its parts are the nodes by what they have of the defect."""
    most = max((defect.total for defect in defects), default=0) or 1
    scale = (_WIDTH - _LABEL_WIDTH - 60) / most
    height = _ROW_HEIGHT * len(defects) + 40
    parts = [_svg_begin(height, "Nodes by defect")]
    for row, defect in enumerate(defects):
        y = row * _ROW_HEIGHT
        parts.append(f'<text x="0" y="{y + 20}">{escape(defect.defect)}</text>')
        x = float(_LABEL_WIDTH)
        for (style, name), count in zip(STATUSES, counts(defect), strict=True):
            if count:
                width = count * scale
                parts.append(
                    f'<rect class="{style}" x="{x:.1f}" y="{y + 6}" width="{width:.1f}" '
                    f'height="20">'
                    f"<title>{escape(defect.defect)}: {count} {name}</title></rect>"
                )
                x += width
        needing = defect.affected + defect.partly
        parts.append(f'<text x="{x + 8:.1f}" y="{y + 20}">{needing} of {defect.total}</text>')
    x, y = float(_LABEL_WIDTH), _ROW_HEIGHT * len(defects) + 16
    for style, name in STATUSES:
        parts.append(f'<rect class="{style}" x="{x:.1f}" y="{y}" width="12" height="12"/>')
        parts.append(f'<text class="small" x="{x + 18:.1f}" y="{y + 10}">{name}</text>')
        x += 40 + 7 * len(name)
    parts.append("</svg>")
    return "".join(parts)


def timeline(symptoms: list[SymptomReport], bin_seconds: int) -> str:
    """Return a row of columns for each symptom, on one axis of time."""
    begins = [part.begin for symptom in symptoms for part in symptom.timeline]
    first, last = min(begins), max(begins) + timedelta(seconds=bin_seconds)
    span = (last - first).total_seconds()
    scale = (_WIDTH - _LABEL_WIDTH - 20) / span
    row_height = 56
    height = row_height * len(symptoms) + 30
    parts = [_svg_begin(height, "Timeline of symptoms")]
    for row, symptom in enumerate(symptoms):
        base = (row + 1) * row_height - 8
        most = max(part.count for part in symptom.timeline)
        total = sum(part.count for part in symptom.timeline)
        parts.append(f'<text x="0" y="{base - 14}">{escape(symptom.id)}</text>')
        label = f"{total} with a time, at most {most}"
        parts.append(f'<text class="small" x="0" y="{base}">{label}</text>')
        parts.append(_line(_LABEL_WIDTH, base, _WIDTH - 20, base))
        for part in symptom.timeline:
            x = _LABEL_WIDTH + (part.begin - first).total_seconds() * scale
            width = min(max(bin_seconds * scale - 1, 2), _MAX_COLUMN_WIDTH)
            column = max(round(part.count / most * (row_height - 18)), 3)
            parts.append(
                f'<rect class="mark" x="{x:.1f}" y="{base - column}" width="{width:.1f}" '
                f'height="{column}"><title>{escape(symptom.id)}: {part.count} from '
                f"{format_time(part.begin)}</title></rect>"
            )
    y = row_height * len(symptoms) + 16
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        x = _LABEL_WIDTH + share * span * scale
        time = first + timedelta(seconds=share * span)
        parts.append(
            f'<text class="small" x="{x:.1f}" y="{y}" text-anchor="{anchor}">'
            f"{format_time(time)}</text>"
        )
    parts.append("</svg>")
    return "".join(parts)


def _svg_begin(height: int, label: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{label}">'
    )


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="axis" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'
