"""Tables of texts, for terminals and for Markdown pages. The first row is the head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Cells = list[Sequence[str]]


def aligned_lines(table: Cells) -> Iterator[str]:
    """Return the lines of a table with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  " + "  ".join(cells).rstrip()


def markdown_rows(table: Cells) -> Iterator[str]:
    """Return the lines of a Markdown table."""
    head, *rows = table
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
