"""Panels of a dashboard as SVG: single values, lines over time, and tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from math import ceil, floor, isfinite, log10

# Sizes in pixels.
_COLUMN = 50
_ROW = 30
_GAP = 8
_MARGIN = 12
_TITLE = 26
_AXIS = 58
_TIME_AXIS = 18
_LEGEND_LINE = 16

_COLORS = ("#2563eb", "#16a34a", "#ea580c", "#9333ea", "#0891b2", "#ca8a04", "#db2777", "#475569")
_TEXT, _FAINT, _GRID, _PAGE = "#0f172a", "#475569", "#e2e8f0", "#f4f5f5"
_MAX_LEGENDS = 6
_MAX_ROWS = 7
_TIME_TICKS = 4
_DAY_SECONDS = 86_400

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """The place of a panel in a grid of 24 columns."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Series:
    """Values of one set of labels, each with its time."""

    name: str
    labels: Mapping[str, str]
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A panel with its data."""

    title: str
    kind: str
    box: Box
    series: tuple[Series, ...]
    unit: str
    is_stacked: bool
    shows_name: bool


@dataclass(frozen=True, slots=True)
class Period:
    """The time that a picture shows, in seconds since 1970, and the distance of its points."""

    start: float
    end: float
    step: float


def render(drawings: Sequence[Drawing], period: Period) -> str:
    """Return an SVG document with all panels."""
    width = 24 * _COLUMN + 2 * _MARGIN
    height = max(each.box.y + each.box.height for each in drawings) * _ROW + 2 * _MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="system-ui, sans-serif" font-size="12" fill="{_TEXT}">',
        "<title>The dashboard of podsettle</title>",
        f'<rect width="{width}" height="{height}" fill="{_PAGE}"/>',
    ]
    for drawing in drawings:
        lines += _panel(drawing, period)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _panel(drawing: Drawing, period: Period) -> Iterator[str]:
    box = drawing.box
    x, y = _MARGIN + box.x * _COLUMN, _MARGIN + box.y * _ROW
    width, height = box.width * _COLUMN - _GAP, box.height * _ROW - _GAP
    yield f'<g transform="translate({x} {y})">'
    if drawing.kind == "row":
        yield _text(0, 17, drawing.title, size=15, bold=True)
    else:
        yield f'<rect width="{width}" height="{height}" rx="3" fill="#fff" stroke="{_GRID}"/>'
        yield _text(10, 18, drawing.title, bold=True)
        if drawing.kind == "stat":
            yield from _stat(drawing, width, height)
        elif drawing.kind == "table":
            yield from _table(drawing, width)
        else:
            yield from _graph(drawing, width, height, period)
    yield "</g>"


def _stat(drawing: Drawing, width: int, height: int) -> Iterator[str]:
    """Yield the last value of each series, as large text."""
    if drawing.shows_name:
        text = ", ".join(series.name for series in drawing.series)
    else:
        text = ", ".join(
            format_value(series.points[-1][1], drawing.unit) for series in drawing.series
        )
    yield _text(width / 2, height / 2 + 22, text or "no data", size=28, anchor="middle")


def _table(drawing: Drawing, width: int) -> Iterator[str]:
    """Yield the labels and the value of each series in a row."""
    columns = sorted({label for series in drawing.series for label in series.labels})
    places = [10 + index * (width - 20) / (len(columns) + 1) for index in range(len(columns) + 1)]
    for place, column in zip(places, [*columns, "still needed"], strict=True):
        yield _text(place, _TITLE + 18, column, color=_FAINT)
    shown = sorted(drawing.series, key=lambda series: sorted(series.labels.items()))
    for index, series in enumerate(shown[:_MAX_ROWS]):
        y = _TITLE + 42 + index * 24
        yield f'<line x1="10" y1="{y - 17}" x2="{width - 10}" y2="{y - 17}" stroke="{_GRID}"/>'
        needed = series.points[-1][1] > 0
        for place, column in zip(places, columns, strict=False):
            yield _text(place, y, series.labels.get(column, ""))
        yield _text(places[-1], y, "yes" if needed else "no", color=_COLORS[not needed], bold=True)


def _graph(drawing: Drawing, width: int, height: int, period: Period) -> Iterator[str]:
    """Yield lines over time, with axes and a legend."""
    start, end = period.start, period.end
    shown = drawing.series[:_MAX_LEGENDS]
    legend = list(_legend_places(shown, width - 20))
    legend_height = (legend[-1][1] + 1) * _LEGEND_LINE if legend else _LEGEND_LINE
    left, top, right = _AXIS, _TITLE + 8, width - 12
    bottom = height - legend_height - _TIME_AXIS - 6
    stacks = list(_stacked(drawing.series) if drawing.is_stacked else _unstacked(drawing.series))
    highest = max((value for _, upper in stacks for _, value in upper), default=0.0)
    ticks = axis_ticks(highest, 2**20 if drawing.unit == "bytes" else 1)

    def place(point: Point) -> str:
        time, value = point
        across = left + (time - start) / (end - start) * (right - left)
        return f"{across:.1f},{bottom - value / ticks[-1] * (bottom - top):.1f}"

    for tick in ticks:
        y = bottom - tick / ticks[-1] * (bottom - top)
        yield f'<line x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="{_GRID}"/>'
        label = format_value(tick, drawing.unit)
        yield _text(left - 6, y + 4, label, size=11, color=_FAINT, anchor="end")
    for index in range(_TIME_TICKS + 1):
        time = start + (end - start) * index / _TIME_TICKS
        x = left + (right - left) * index / _TIME_TICKS
        label = datetime.fromtimestamp(time, UTC).strftime("%H:%M")
        anchor = "start" if index == 0 else "end" if index == _TIME_TICKS else "middle"
        yield _text(x, bottom + 15, label, size=11, color=_FAINT, anchor=anchor)
    for index, (lower, upper) in reversed(list(enumerate(stacks))):
        color = _COLORS[index % len(_COLORS)]
        for run_lower, run_upper in _runs(lower, upper, 3 * period.step):
            if drawing.is_stacked:
                area = " ".join(map(place, (*run_upper, *reversed(run_lower))))
                yield f'<polygon points="{area}" fill="{color}" fill-opacity="0.25"/>'
            line = " ".join(map(place, run_upper))
            yield f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.5"/>'
    if not stacks:
        x, y = (left + right) / 2, (top + bottom) / 2
        yield _text(x, y, "no data", color=_FAINT, anchor="middle")
    for (across, row), (index, series) in zip(legend, enumerate(shown), strict=True):
        y = height - legend_height + row * _LEGEND_LINE + 4
        color = _COLORS[index % len(_COLORS)]
        yield f'<rect x="{10 + across}" y="{y - 3}" width="12" height="3" fill="{color}"/>'
        yield _text(26 + across, y + 2, series.name, size=11)


def _legend_places(shown: Iterable[Series], width: float) -> Iterator[tuple[float, int]]:
    """Yield for each name its distance from the left, and its line."""
    x, line = 0.0, 0
    for series in shown:
        needed = 30 + 6.2 * len(series.name)
        if x and x + needed > width:
            x, line = 0.0, line + 1
        yield x, line
        x += needed


Lines = tuple[Sequence[Point], Sequence[Point]]
"""The lower and the upper edge of a series."""


def _unstacked(series: Iterable[Series]) -> Iterator[Lines]:
    for each in series:
        upper = [point for point in each.points if isfinite(point[1])]
        yield [(time, 0.0) for time, _ in upper], upper


def _stacked(series: Iterable[Series]) -> Iterator[Lines]:
    sums: dict[float, float] = {}
    for each in series:
        lower, upper = [], []
        for time, value in each.points:
            if isfinite(value):
                lower.append((time, sums.get(time, 0.0)))
                sums[time] = sums.get(time, 0.0) + value
                upper.append((time, sums[time]))
        yield lower, upper


def _runs(lower: Sequence[Point], upper: Sequence[Point], gap: float) -> Iterator[Lines]:
    """Yield the parts of a series between gaps, so that no line crosses a gap."""
    begin = 0
    for index in range(1, len(upper) + 1):
        if index == len(upper) or upper[index][0] - upper[index - 1][0] > gap:
            yield lower[begin:index], upper[begin:index]
            begin = index


def axis_ticks(highest: float, base: float = 1) -> list[float]:
    """Return round multiples of `base` from 0 to at least `highest`."""
    if highest <= 0:
        return [0.0, float(base)]
    rough = highest / base / 4
    power = 10.0 ** floor(log10(rough))
    factor = next(factor for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
    step = base * factor * power
    return [step * index for index in range(ceil(highest / step - 1e-9) + 1)]


def format_value(value: float, unit: str) -> str:
    """Return a value with its unit, as short as Grafana writes it."""
    if unit == "bytes":
        return f"{value / 2**20:.4g} MiB"
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "s":
        if value >= _DAY_SECONDS:
            return f"{value / _DAY_SECONDS:.3g} days"
        return f"{value:.3g} s" if value >= 1 or value == 0 else f"{value * 1000:.3g} ms"
    suffix = {"reqps": "/s", "cpm": "/min"}.get(unit, "")
    return f"{value:.4g}{suffix and ' ' + suffix}"


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int = 12,
    color: str = _TEXT,
    anchor: str = "start",
    bold: bool = False,
) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{color}" '
        f'text-anchor="{anchor}"{weight}>{escape(text)}</text>'
    )
