"""Figures as people read them."""

from __future__ import annotations

from bench.measurement import Measurement


def format_value(value: float, unit: str = "") -> str:
    """Three digits that mean something, and the unit."""
    return (
        f"{format_number(value)} {unit}".rstrip()
        if unit not in ("/s", "/CPU-s")
        else format_number(value)
    )


def format_number(value: float) -> str:
    """Three digits that mean something."""
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}"


def format_measurement(measure: Measurement) -> str:
    """The median, and from where to where the rounds went."""
    middle = format_value(measure.median, measure.unit)
    if len(measure.values) == 1:
        return middle
    return f"{middle} ({format_number(measure.low)}–{format_number(measure.high)})"
