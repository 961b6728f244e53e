"""The table of JSON keys in docs/scan.md, from the model of the report."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator
from typing import Any

import msgspec

from webhook.inspect.scan.model import ScanReport

_REGION = re.compile(r"(<!-- keys -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def fill_regions(page: str) -> str:
    """Return a written page with the table in its region."""
    lines = ["| at | what | keys |", "|---|---|---|", *_rows(ScanReport, "")]
    table = "".join(f"{line}\n" for line in lines)
    return _REGION.sub(lambda region: region[1] + table + region[3], page)


def _rows(struct: type[msgspec.Struct], path: str) -> Iterator[str]:
    """Yield the row of an object, and those of the objects inside it."""
    fields = msgspec.structs.fields(struct)
    what = (inspect.getdoc(struct) or "").partition("\n")[0]
    keys = ", ".join(f"`{field.encode_name}`" for field in fields)
    yield f"| {f'`{path}`' if path else 'the document'} | {what} | {keys} |"
    for field in fields:
        if inner := _struct_in(field.type):
            is_list = typing.get_origin(field.type) is tuple
            yield from _rows(
                inner, f"{path}.{field.encode_name}{'[]' if is_list else ''}".lstrip(".")
            )


def _struct_in(annotation: Any) -> type[msgspec.Struct] | None:
    """Return the first struct in a type annotation, or None."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    found = (_struct_in(part) for part in typing.get_args(annotation))
    return next((struct for struct in found if struct is not None), None)
