"""Charts of horizontal bars in panels as SVG, each bar with its range as a line."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.typing import RcKeyType

_WIDTH_INCHES = 12.0
_ROW_INCHES = 0.36
_TITLE_INCHES = 0.6
_MARGIN_INCHES = 0.2
_OWN_COLOR, _OTHER_COLOR, _TEXT_COLOR = "#2563eb", "#94a3b8", "#0f172a"
# The part of the width for the labels in front of the bars.
_LABEL_SHARE = 0.42
# The part of a panel's scale that is left for the texts behind the bars.
_TEXT_SHARE = 0.4
_SETTINGS: dict[RcKeyType, Any] = {
    "font.family": "sans-serif",
    "font.size": 13,
    "text.color": _TEXT_COLOR,
    "ytick.color": _TEXT_COLOR,
    # Texts stay texts: they can be searched and read aloud.
    "svg.fonttype": "none",
    # Without it, the names of clip paths are random, and each run writes another file.
    "svg.hashsalt": "podsettle",
}


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


@dataclass(frozen=True, slots=True)
class Panel:
    """Bars with a common scale and a title."""

    title: str
    bars: tuple[Bar, ...]


def render_panels(panels: Sequence[Panel], description: str) -> str:
    """Return an SVG document with the panels. A screen reader reads the description."""
    # No package of `make test`, which collects the tests of what calls this.
    import matplotlib as mpl
    from matplotlib.figure import Figure

    panels = [panel for panel in panels if panel.bars]
    heights = [_TITLE_INCHES + _ROW_INCHES * len(panel.bars) for panel in panels]
    height = sum(heights) + _MARGIN_INCHES
    with mpl.rc_context(_SETTINGS), io.StringIO() as document:
        # The white background makes the dark texts readable in a dark viewer.
        figure = Figure((_WIDTH_INCHES, height), facecolor="white")
        top = 1.0
        for panel, panel_height in zip(panels, heights, strict=True):
            title_bottom = top - _TITLE_INCHES / height
            top -= panel_height / height
            figure.text(0.02, title_bottom, panel.title, fontsize="large", fontweight="bold")
            _draw(panel, figure.add_axes((_LABEL_SHARE, top, 1 - _LABEL_SHARE, title_bottom - top)))
        metadata = {"Title": description, "Date": None, "Creator": None}
        figure.savefig(document, format="svg", metadata=metadata)
        return document.getvalue()


def _draw(panel: Panel, axes: Axes) -> None:
    """Draw the bars of a panel, without lines around them."""
    places = range(len(panel.bars))
    below = [bar.value - bar.low for bar in panel.bars]
    above = [bar.high - bar.value for bar in panel.bars]
    drawn = axes.barh(
        places,
        [bar.value for bar in panel.bars],
        height=0.62,
        color=[_OWN_COLOR if bar.ours else _OTHER_COLOR for bar in panel.bars],
        xerr=[below, above],
        ecolor=_TEXT_COLOR,
    )
    axes.bar_label(drawn, [bar.text for bar in panel.bars], padding=8)
    axes.set_yticks(places, [bar.label for bar in panel.bars])
    axes.set_xlim(0, (max(bar.high for bar in panel.bars) or 1.0) * (1 + _TEXT_SHARE))
    # The first bar is at the top. The space above it separates it from the title.
    axes.set_ylim(len(panel.bars) - 0.5, -0.7)
    axes.tick_params(length=0)
    axes.xaxis.set_visible(False)
    axes.spines[:].set_visible(False)
