"""The interface of an authorizer, and its result.

The server uses an authorizer, and `token_review` implements it with an API server. This module is
separate so that the server does not import the Kubernetes client.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple, Protocol


class Access(Enum):
    """The possible results of an authorization."""

    GRANTED = auto()
    UNAUTHENTICATED = auto()
    """The token is not valid."""
    FORBIDDEN = auto()
    UNKNOWN = auto()
    """The API server could not be reached."""


class AccessDecision(NamedTuple):
    """A result with its reason."""

    access: Access
    note: str = ""


class Authorizer(Protocol):
    """An authorizer for HTTP requests with a bearer token."""

    async def authorize(self, token: str, verb: str, path: str) -> AccessDecision:
        """Decide whether a token permits an HTTP method, in lower case, on a path."""
