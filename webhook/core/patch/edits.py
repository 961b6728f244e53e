"""The kinds of edits that a remedy may make to a pod, apart from setting fields of the spec."""

from __future__ import annotations

from enum import StrEnum


class Edit(StrEnum):
    """A kind of edit. Each remedy declares the kinds that its patches may contain."""

    effect: str
    """What the edit does to a pod, for the documentation."""

    def __new__(cls, name: str, effect: str) -> Edit:
        """Create a kind of edit from its name and its effect."""
        edit = str.__new__(cls, name)
        edit._value_, edit.effect = name, effect
        return edit

    __hash__ = str.__hash__  # `Enum.__hash__` is slower, and each review hashes several.

    ANNOTATION = "Annotation", "sets annotations that the runtime reads"
    COMMAND = "Command", "puts a wrapper in front of the command that containers start"
    MOUNT = "Mount", "mounts the volume of the helper in containers"
    VOLUME = "Volume", "appends the volume of the helper"
    INIT_CONTAINER = "InitContainer", "inserts or moves an init container of podsettle"
    RESTART_RULES = "RestartRules", "sets `restartPolicy` and `restartPolicyRules` of containers"
