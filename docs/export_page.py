"""The table in docs/export.md of what native policies can do, from the registry of remedies."""

from __future__ import annotations

import re
from collections.abc import Iterator

from webhook.core.remedies import REMEDIES

_REGION = re.compile(r"(<!-- remedies -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def fill_regions(page: str) -> str:
    """Return a written page with the table in its region."""
    table = "".join(f"{line}\n" for line in _lines())
    return _REGION.sub(lambda region: region[1] + table + region[3], page)


def _lines() -> Iterator[str]:
    yield "| remedy | in a native policy |"
    yield "|---|---|"
    for name, remedy in REMEDIES.items():
        native = remedy.native
        if isinstance(native, str):
            yield f"| `{name}` | no: {native} |"
        else:
            yield f"| `{name}` | yes{f': {native.limits}' if native.limits else ''} |"
