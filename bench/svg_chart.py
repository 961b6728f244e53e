"""The results as an SVG chart: bars in panels, with the range over the rounds as a line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape

from bench import core, end_to_end, growth, throughput
from bench.format import format_value
from bench.measurement import Measurement
from bench.report_table import ReportTable
from bench.run import CONNECTIONS

# Sizes in pixels.
_WIDTH = 860
_LABEL_WIDTH = 300
_MAX_BAR_WIDTH = 430
_ROW_HEIGHT = 26
_BAR_HEIGHT = 16
_TITLE_HEIGHT = 40
_PANEL_GAP = 22
_MARGIN = 24
_PODSETTLE_COLOR, _OTHER_COLOR, _TEXT_COLOR, _FIGURE_COLOR = (
    "#2563eb",
    "#94a3b8",
    "#0f172a",
    "#475569",
)


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure with its label. `ours` marks podsettle's bars."""

    label: str
    measurement: Measurement
    ours: bool


@dataclass(frozen=True, slots=True)
class Panel:
    """Bars with a common scale and a title."""

    title: str
    bars: tuple[Bar, ...]

    @property
    def height(self) -> int:
        """The height in pixels."""
        return _TITLE_HEIGHT + _ROW_HEIGHT * len(self.bars) + _PANEL_GAP


def render_chart(parts: Mapping[str, ReportTable]) -> str:
    """Return an SVG document with a panel for each measured part."""
    panels = [panel for panel in _panels(parts) if panel.bars]
    height = sum(panel.height for panel in panels) + 2 * _MARGIN - _PANEL_GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" font-family="system-ui, sans-serif" font-size="13" '
        f'fill="{_TEXT_COLOR}" role="img" aria-label="Benchmark results of podsettle">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    top = _MARGIN
    for panel in panels:
        lines += _draw(panel, top)
        top += panel.height
    return "\n".join([*lines, "</svg>", ""])


def _panels(parts: Mapping[str, ReportTable]) -> Iterator[Panel]:
    if part := parts.get(throughput.NAME):
        bars = [
            Bar(name, part.figure(throughput.row(row, CONNECTIONS), "reviews per CPU-second"), ours)
            for name, row, ours in (
                ("bare ASGI echo", "echo", False),
                ("podsettle", "podsettle", True),
                ("Go: agnhost", "agnhost", False),
            )
        ]
        yield Panel("Reviews of an 8 KB pod per CPU-second (more is better)", tuple(bars))
    if part := parts.get(end_to_end.NAME):
        bars = [
            Bar(name, part.figure(name, end_to_end.INCREMENT), name == end_to_end.PODSETTLE)
            for name in (end_to_end.NATIVE, end_to_end.PODSETTLE)
        ]
        yield Panel("Increment of a pod creation, p50 (less is better)", tuple(bars))
    if part := parts.get(growth.NAME):
        for title, is_pod in (("cluster grows", False), ("pod grows", True)):
            bars = [
                Bar(name, figures["reviews/s"], not name.endswith(", echo"))
                for name, figures in part.rows.items()
                if growth.is_about_pods(name) is is_pod
            ]
            yield Panel(f"Reviews per second as the {title} (more is better)", tuple(bars))
    if part := parts.get(core.NAME):
        bars = [
            Bar(name, figures["time"], name not in (core.ORJSON, core.JSON))
            for name, figures in part.rows.items()
        ]
        title = "CPU time of the core for an 8 KB review (less is better)"
        yield Panel(title, tuple(bars))


def _draw(panel: Panel, top: int) -> Iterator[str]:
    """Yield the SVG elements of a panel that begins `top` pixels below the edge."""
    yield (
        f'<text x="{_MARGIN}" y="{top + 16}" font-size="15" font-weight="600">'
        f"{escape(panel.title)}</text>"
    )
    highest = max(bar.measurement.high for bar in panel.bars) or 1.0
    scale = _MAX_BAR_WIDTH / highest
    for number, bar in enumerate(panel.bars):
        y = top + _TITLE_HEIGHT + number * _ROW_HEIGHT
        middle = y + _BAR_HEIGHT / 2
        low, high = max(bar.measurement.low, 0.0) * scale, max(bar.measurement.high, 0.0) * scale
        width = max(bar.measurement.median, 0.0) * scale
        weight = ' font-weight="600"' if bar.ours and len(panel.bars) < 5 else ""
        yield (
            f'<text x="{_LABEL_WIDTH - 10}" y="{y + 13}" text-anchor="end"{weight}>'
            f"{escape(bar.label)}</text>"
        )
        yield (
            f'<rect x="{_LABEL_WIDTH}" y="{y}" width="{width:.1f}" height="{_BAR_HEIGHT}" rx="2" '
            f'fill="{_PODSETTLE_COLOR if bar.ours else _OTHER_COLOR}"/>'
        )
        yield (
            f'<line x1="{_LABEL_WIDTH + low:.1f}" x2="{_LABEL_WIDTH + high:.1f}" y1="{middle}" '
            f'y2="{middle}" stroke="{_TEXT_COLOR}" stroke-width="1.5"/>'
        )
        yield (
            f'<text x="{_LABEL_WIDTH + max(width, high) + 8:.1f}" y="{y + 13}" '
            f'fill="{_FIGURE_COLOR}">'
            f"{escape(format_value(bar.measurement.median, bar.measurement.unit))}</text>"
        )
