"""The values of labels of metrics that several parts of the server count."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeAlias

PreviewResult: TypeAlias = Literal[
    "answered", "refused", "deadline", "memory", "crashed", "overloaded", "disconnected"
]
"""Values of the label `result` in the metric podsettle_previews_total."""


class HandshakeFailure(StrEnum):
    """A reason for which a handshake fails: a label of the metric."""

    CLIENT_CERTIFICATE = "client_certificate"
    """The client presented a certificate that is not valid for the CA in --client-ca."""
    ALERT = "alert"
    """The client ended the handshake with an alert, usually about podsettle's certificate."""
    INVALID = "invalid"
    """The client sent no TLS, or no TLS that podsettle accepts."""
    TIMEOUT = "timeout"
    """The client was too slow."""
    TOO_MANY = "too_many"
    """It was the oldest of too many handshakes."""
    DISCONNECTED = "disconnected"
    """The client closed the connection."""
