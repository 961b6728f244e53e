"""Whether someone may do something, as an API server judges it."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple, Protocol


class Access(Enum):
    """The ways in which it can end."""

    GRANTED = auto()
    UNAUTHENTICATED = auto()
    """Nobody knows whose token it is."""
    FORBIDDEN = auto()
    UNKNOWN = auto()
    """The API server could not be asked."""


class AccessDecision(NamedTuple):
    """The end, and what there is to say about it."""

    access: Access
    note: str = ""


class Authorizer(Protocol):
    """Knows who may do what."""

    async def authorize(self, token: str, verb: str, path: str) -> AccessDecision:
        """Whether the bearer of a token may use an HTTP method, in lower case, on a path."""
