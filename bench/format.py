"""Formatting of figures, with three significant digits."""

from __future__ import annotations

from bench.measurement import Measurement

# The unit of numbers of things, which are whole.
COUNT = "count"


def format_value(value: float, unit: str = "") -> str:
    """Return the value and its unit. The units of rates are omitted: the column names them."""
    if unit == COUNT:
        return f"{value:,.0f}"
    if unit in ("/s", "/CPU-s"):
        return format_number(value)
    return f"{format_number(value)} {unit}".rstrip()


def format_number(value: float) -> str:
    """Return the value with at least three significant digits."""
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}"


def format_measurement(measurement: Measurement) -> str:
    """Return the median and, after more than one round, the range."""
    median = format_value(measurement.median, measurement.unit)
    if len(measurement.values) == 1:
        return median
    unit = COUNT if measurement.unit == COUNT else ""
    low, high = (format_value(value, unit) for value in (measurement.low, measurement.high))
    return f"{median} ({low}–{high})"
