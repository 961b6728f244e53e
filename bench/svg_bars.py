"""SVG charts of horizontal bars in panels, each bar with its range as a line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

# Sizes in pixels.
_WIDTH = 860
_LABEL_WIDTH = 300
_MAX_BAR_WIDTH = 430
_ROW_HEIGHT = 26
_BAR_HEIGHT = 16
_TITLE_HEIGHT = 40
_PANEL_GAP = 22
_MARGIN = 24
_OWN_COLOR, _OTHER_COLOR, _TEXT_COLOR, _FIGURE_COLOR = (
    "#2563eb",
    "#94a3b8",
    "#0f172a",
    "#475569",
)


@dataclass(frozen=True, slots=True)
class Bar:
    """A value with its range, its label and the text behind the bar."""

    label: str
    value: float
    low: float
    high: float
    text: str
    ours: bool
    """Whether the bar has the colour of podsettle."""
    strong: bool = False
    """Whether the label is bold."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Bars with a common scale and a title."""

    title: str
    bars: tuple[Bar, ...]

    @property
    def height(self) -> int:
        """The height in pixels."""
        return _TITLE_HEIGHT + _ROW_HEIGHT * len(self.bars) + _PANEL_GAP


def render_panels(panels: Sequence[Panel], description: str) -> str:
    """Return an SVG document with the panels. A screen reader reads the description."""
    panels = [panel for panel in panels if panel.bars]
    height = sum(panel.height for panel in panels) + 2 * _MARGIN - _PANEL_GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" font-family="system-ui, sans-serif" font-size="13" '
        f'fill="{_TEXT_COLOR}" role="img" aria-label="{escape(description)}">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    top = _MARGIN
    for panel in panels:
        lines += _draw(panel, top)
        top += panel.height
    return "\n".join([*lines, "</svg>", ""])


def _draw(panel: Panel, top: int) -> Iterator[str]:
    """Yield the SVG elements of a panel that begins `top` pixels below the edge."""
    yield (
        f'<text x="{_MARGIN}" y="{top + 16}" font-size="15" font-weight="600">'
        f"{escape(panel.title)}</text>"
    )
    highest = max(bar.high for bar in panel.bars) or 1.0
    scale = _MAX_BAR_WIDTH / highest
    for number, bar in enumerate(panel.bars):
        y = top + _TITLE_HEIGHT + number * _ROW_HEIGHT
        middle = y + _BAR_HEIGHT / 2
        low, high = max(bar.low, 0.0) * scale, max(bar.high, 0.0) * scale
        width = max(bar.value, 0.0) * scale
        weight = ' font-weight="600"' if bar.strong else ""
        yield (
            f'<text x="{_LABEL_WIDTH - 10}" y="{y + 13}" text-anchor="end"{weight}>'
            f"{escape(bar.label)}</text>"
        )
        yield (
            f'<rect x="{_LABEL_WIDTH}" y="{y}" width="{width:.1f}" height="{_BAR_HEIGHT}" rx="2" '
            f'fill="{_OWN_COLOR if bar.ours else _OTHER_COLOR}"/>'
        )
        yield (
            f'<line x1="{_LABEL_WIDTH + low:.1f}" x2="{_LABEL_WIDTH + high:.1f}" y1="{middle}" '
            f'y2="{middle}" stroke="{_TEXT_COLOR}" stroke-width="1.5"/>'
        )
        yield (
            f'<text x="{_LABEL_WIDTH + max(width, high) + 8:.1f}" y="{y + 13}" '
            f'fill="{_FIGURE_COLOR}">{escape(bar.text)}</text>'
        )
