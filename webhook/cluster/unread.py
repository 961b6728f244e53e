"""What could not be read of a cluster, and why.

"None found" and "not looked at" are different answers, so commands name what they could not read.
"""

from __future__ import annotations

from typing import NamedTuple

from webhook.cluster.rights import Right


class Unread(NamedTuple):
    """Objects that could not be read."""

    resource: str
    """The plural name of the kind, such as `pods`."""
    right: Right
    """The right that reading takes."""
    other_cause: str = ""
    """Why they could not be read, if the user does not lack the right."""

    @property
    def is_denied(self) -> bool:
        """Whether the user lacks the right."""
        return not self.other_cause

    @property
    def why(self) -> str:
        """The cause, as a clause that follows the name of the objects."""
        return self.other_cause or f"it needs the right to {self.right}"


class NotAllowedError(Exception):
    """A request that the API server refused because the user lacks a right."""

    def __init__(self, right: Right) -> None:
        super().__init__(f"needs the right to {right}")
        self.right = right
