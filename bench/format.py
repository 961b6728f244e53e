"""Figures as people read them."""

from __future__ import annotations

from bench.measurement import Measure


def figure(value: float, unit: str = "") -> str:
    """Three digits that mean something, and the unit."""
    return f"{number(value)} {unit}".rstrip() if unit not in ("/s", "/CPU-s") else number(value)


def number(value: float) -> str:
    """Three digits that mean something."""
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}"


def measured(measure: Measure) -> str:
    """The median, and from where to where the rounds went."""
    middle = figure(measure.median, measure.unit)
    if len(measure.values) == 1:
        return middle
    return f"{middle} ({number(measure.low)}–{number(measure.high)})"
