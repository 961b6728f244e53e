"""The text of a path to a value in a document."""

from __future__ import annotations


def json_path(path: tuple[str | int, ...]) -> str:
    """Return a path as text, such as `spec.remedies.postInitSleep.initContainers[0]`."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
