"""The pictures in the HTML report of a scan: a bar for each defect, and a timeline.

Each bar is an SVG that the browser stretches, between labels of HTML. So the labels keep their size
on a narrow screen. No element has a style of its own, which the page's policy would block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from html import escape

from webhook.inspect.findings import format_time
from webhook.inspect.scan.model import DefectNodes, SymptomReport, count_of

STATUSES = (
    ("affected", "affected"),
    ("partly", "partly affected"),
    ("possible", "possible"),
    ("unverified", "not affected, unverified"),
    ("free", "not affected"),
)
"""The classes of the style sheet, with the words of the catalogue, in the order of the bars."""

_WIDTH, _HEIGHT = 1000, 40
"""The size of each picture, in units that the browser stretches."""
_MAX_COLUMN_WIDTH, _MIN_COLUMN_HEIGHT = 25, 4


def counts(defect: DefectNodes) -> tuple[int, int, int, int, int]:
    """Return the numbers of nodes in the order of STATUSES."""
    return (
        defect.affected,
        defect.partly,
        defect.possible,
        defect.unverified,
        defect.not_affected,
    )


def bar_chart(defects: tuple[DefectNodes, ...]) -> str:
    """Return a bar for each defect. Its parts are the nodes by what they have of the defect."""
    return "".join(_bars(defects))


def _bars(defects: tuple[DefectNodes, ...]) -> Iterator[str]:
    used = [any(counts(defect)[index] for defect in defects) for index in range(len(STATUSES))]
    yield '<div class="chart">'
    for defect in defects:
        label = (
            f"{defect.possible} possible"
            if defect.possible
            else f"{defect.affected + defect.partly} of {defect.total}"
        )
        yield f"<span>{escape(defect.defect)}</span>{_svg(_bar(defect), defect.defect)}"
        yield f"<span>{label}</span>"
    yield '</div><p class="legend">'
    for (style, name), is_used in zip(STATUSES, used, strict=True):
        if is_used:
            yield f"{_svg([_rect(style, 0, 0, _WIDTH, _HEIGHT)], name)}<span>{name}</span>"
    yield "</p>"


def _bar(defect: DefectNodes) -> Iterator[str]:
    x, scale = 0.0, _WIDTH / (defect.total or 1)
    for (style, name), count in zip(STATUSES, counts(defect), strict=True):
        if count:
            title = f"{defect.defect}: {count} {name}"
            yield _rect(style, x, 0, count * scale, _HEIGHT, title)
            x += count * scale


def timeline(symptoms: Sequence[SymptomReport], bin_seconds: int) -> str:
    """Return a row of columns for each symptom, on one axis of time."""
    begins = [part.begin for symptom in symptoms for part in symptom.timeline]
    first, last = min(begins), max(begins) + timedelta(seconds=bin_seconds)
    scale = _WIDTH / (last - first).total_seconds()
    parts = ['<div class="chart">']
    for symptom in symptoms:
        most = max(part.count for part in symptom.timeline)
        total = sum(part.count for part in symptom.timeline)
        columns = []
        for part in symptom.timeline:
            x = (part.begin - first).total_seconds() * scale
            width = min(max(bin_seconds * scale - 1, 2), _MAX_COLUMN_WIDTH)
            height = max(round(part.count / most * _HEIGHT), _MIN_COLUMN_HEIGHT)
            title = f"{symptom.id}: {part.count} from {format_time(part.begin)}"
            columns.append(_rect("mark", x, _HEIGHT - height, width, height, title))
        parts.append(f"<span>{escape(symptom.id)}</span>{_svg(columns, symptom.id, 'axis')}")
        parts.append(f"<span>{count_of(total, 'time')}</span>")
    parts.append('</div><p class="ends">')
    parts.append(f"<span>{format_time(first)}</span><span>{format_time(last)}</span></p>")
    return "".join(parts)


def _svg(parts: Sequence[str] | Iterator[str], label: str, style: str = "") -> str:
    attribute = f' class="{style}"' if style else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'preserveAspectRatio="none" aria-label="{escape(label)}"{attribute}>{"".join(parts)}</svg>'
    )


def _rect(style: str, x: float, y: float, width: float, height: float, title: str = "") -> str:
    inner = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<rect class="{style}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}">'
        f"{inner}</rect>"
    )
