"""The interface of authorizers, and the type of their results.

`token_review` implements the interface with an API server. This module is separate so that the HTTP
server does not import the Kubernetes client.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple, Protocol


class Access(Enum):
    """The possible results of an authorization."""

    GRANTED = auto()
    UNAUTHENTICATED = auto()
    """The API server does not accept the token."""
    FORBIDDEN = auto()
    """The token is valid, but its user may not send this request."""
    UNKNOWN = auto()
    """The API server could not be reached."""


class AccessDecision(NamedTuple):
    """The result of an authorization, with its reason."""

    access: Access
    note: str = ""
    """The reason if access is not granted."""


class Authorizer(Protocol):
    """An authorizer for HTTP requests with a bearer token."""

    async def authorize(self, token: str, verb: str, path: str) -> AccessDecision:
        """Decide whether the user of a token may send a request with this method to this path.

        `verb` is the HTTP method in lower case.
        """
