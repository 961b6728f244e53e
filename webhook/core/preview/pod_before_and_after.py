"""What a decision does to a pod: the pod after the patch, the diff, and their JSON form.

The worker process of `/preview` imports this module, which therefore imports nothing that decides.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import jsonpatch
import yaml

from webhook.core.preview.document import copy_value
from webhook.core.preview.pods_in_document import Workload
from webhook.core.printable import is_printable, printable, printable_yaml

_MAX_DIFF_OPERATIONS = 500
"""The maximum number of patch operations in a diff. A larger diff would take seconds to make and
would be too long to read."""
MAX_DIFF_VALUES = 6_000
"""The maximum number of values in a pod for which a diff is made. A pod of 40 containers has 3,000.
Writing a pod as YAML takes several times as long as the rest of its preview."""


def patched(pod: Mapping[str, Any], operations: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a copy of a pod with a JSON Patch applied."""
    after: dict[str, Any] = jsonpatch.apply_patch(copy_value(pod), operations, in_place=True)
    return after


def diff_of(workload: Workload, after: Mapping[str, Any], operation_count: int) -> str:
    """Return the unified diff of a workload's pod as YAML. Empty if nothing changes."""
    title = printable(workload.title)
    if not operation_count:
        return ""
    if operation_count > _MAX_DIFF_OPERATIONS:
        return f"{title}: {operation_count} operations; see the patch\n"
    if not _has_at_most(MAX_DIFF_VALUES, workload.pod):
        return f"{title}: more than {MAX_DIFF_VALUES} values; see the patch\n"
    before, then = (to_yaml(pod).splitlines() for pod in (workload.pod, after))
    titles = f"{title} as it is", f"{title} as admitted"
    return "".join(f"{line}\n" for line in difflib.unified_diff(before, then, *titles, lineterm=""))


def render_pod(
    workload: Workload, decision: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the JSON of a PodPreview. `decision` is the part that `PodDecision.render` returns."""
    return {
        "kind": workload.kind,
        "name": workload.name,
        "path": workload.path,
        **decision,
        "notes": [*workload.notes, *decision["notes"]],
        "before": workload.pod,
        "after": after,
        "diff": diff_of(workload, after, len(decision["patch"])),
    }


def _has_at_most(limit: int, value: object) -> bool:
    """Return whether a value consists of at most `limit` values, itself included."""
    unvisited = [value]
    for _ in range(limit):
        if not unvisited:
            return True
        inner = unvisited.pop()
        if isinstance(inner, dict):
            unvisited.extend(inner.values())
        elif isinstance(inner, list):
            unvisited.extend(inner)
    return not unvisited


class _Dumper(yaml.CSafeDumper):
    """Writes YAML in block style, with multi-line texts as literal blocks and without aliases."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def _represent_text(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    # A literal block has no escapes. Inside double quotes, `to_yaml` can escape what deceives.
    style = '"' if not is_printable(text.replace("\n", "")) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def to_yaml(value: object) -> str:
    """Return a value as YAML for people. Keys keep their order.

    Characters that are not printable are escaped.
    """
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)
    return printable_yaml(text)
