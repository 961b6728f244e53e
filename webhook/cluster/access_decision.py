"""The results of an authorization by `webhook.cluster.token_review`.

They are a module of their own, so that a server without a cluster imports no Kubernetes client.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple


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
