"""The generated parts of docs/why-was-my-pod-changed.md: the remedies and the reason codes.

podsettle writes addresses such as `why-was-my-pod-changed.md#nocommand` into pods, so each code
needs a heading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from webhook.core.defects.catalogue import DEFECTS
from webhook.core.patch.edits import Edit
from webhook.core.reasons import Reason
from webhook.core.remedies import REMEDIES
from webhook.core.remedies.base import Remedy
from webhook.inspect.explain.target import explain_reason

_REGION = re.compile(r"(<!-- (remedies|reasons) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill_regions(text: str) -> str:
    """Return the page with the current remedies and reason codes in it."""
    lines = {"remedies": _remedy_lines, "reasons": _reason_lines}
    return _REGION.sub(
        lambda found: found[1] + "\n".join(lines[found[2]]()) + "\n" + found[3], text
    )


def effects_of(remedy: Remedy[Any]) -> str:
    """Return what a remedy changes in a pod."""
    fields = ", ".join(f"`{path[1:].replace('/', '.')}`" for path in sorted(remedy.fields))
    effects = [edit.effect for edit in Edit if edit in remedy.edits]
    return "; ".join([f"sets {fields}"] * bool(fields) + effects)


def _remedy_lines() -> Iterator[str]:
    yield "| change | purpose | what it can change in the pod | the fault |"
    yield "|---|---|---|---|"
    for name, remedy in REMEDIES.items():
        faults = [
            f"[{defect.title}]({defect.page or 'defects.md'})"
            for defect in DEFECTS
            if name in defect.remedies
        ]
        columns = (f"`{name}`", remedy.description, effects_of(remedy), "; ".join(faults))
        yield f"| {' | '.join(columns)} |"


def _reason_lines() -> Iterator[str]:
    for reason in Reason:
        explained = explain_reason(reason)
        yield f"### {reason}"
        yield ""
        yield explained["meaning"]
        yield ""
        yield f"- What you can do: {explained['advice']}"
        if explained["warns"]:
            yield "- `kubectl` prints a warning with this code when it creates the pod."
        if explained["remedies"]:
            names = ", ".join(f"`{name}`" for name in explained["remedies"])
            yield f"- Changes for which it is given: {names}."
        yield ""
