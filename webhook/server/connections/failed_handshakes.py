"""The count and the log of TLS handshakes that failed.

A client of `/mutate` whose handshake fails gets no HTTP answer, and an API server then creates pods
without podsettle. The log line names the client and the cause. Clients can fail as often as they
like, so lines are limited in number, for each client and in total.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from time import monotonic

from webhook.server.metric_labels import HandshakeFailure

log = logging.getLogger(__name__)

LOG_INTERVAL_SECONDS = 10.0
"""Minimum time between two lines about one client with the same reason. An API server tries again
for each pod, and no failure of another client hides its line."""
MAX_LINES_PER_INTERVAL = 20
"""Maximum number of lines with the same reason in an interval. It is more than the number of a
cluster's API servers, and it bounds the log if a client uses many addresses."""


class FailedHandshakes:
    """Counts each failure, and logs at most one of each client and reason in an interval."""

    def __init__(
        self,
        count: Callable[[HandshakeFailure], None] = lambda _reason: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._count = count
        self._clock = clock
        self._last_lines: dict[HandshakeFailure, dict[str, float]] = {
            reason: {} for reason in HandshakeFailure
        }
        """The clients of each reason's lines in the last interval, with the times of these lines.
        The oldest is first."""
        self._suppressed: dict[HandshakeFailure, int] = {}
        """The number of failures of a reason since its last line."""

    def record_error(self, client: object, error: OSError) -> None:
        """Record that a handshake with the client at a socket's address ended with an error."""
        if isinstance(error, ssl.SSLCertVerificationError):
            self.record(
                client,
                HandshakeFailure.CLIENT_CERTIFICATE,
                f"the certificate of the client is refused: {error.verify_message}; "
                "is it signed by the CA in --client-ca?",
            )
        elif isinstance(error, ssl.SSLError):
            reason = (error.reason or "unknown TLS error").replace("_", " ").lower()
            _, is_alert, alert = reason.partition(" alert ")
            if is_alert:
                self.record(
                    client,
                    HandshakeFailure.ALERT,
                    f"the client sent the alert {alert!r}; does it trust the CA of podsettle's "
                    "certificate?",
                )
            else:
                self.record(client, HandshakeFailure.INVALID, _INVALID.get(reason, reason))
        # uvloop raises this error, which is no TimeoutError, at the end of the time.
        elif isinstance(error, ConnectionAbortedError):
            self.record(client, HandshakeFailure.TIMEOUT, "the client was too slow")
        else:
            self.record(client, HandshakeFailure.DISCONNECTED)

    def record(self, client: object, reason: HandshakeFailure, cause: str = "") -> None:
        """Log the cause of a failure, and count the failure. Without a cause it is not logged.

        Load balancers connect and disconnect to find out whether the port is open.
        """
        if cause:
            self._log(client, reason, cause)
        self._count(reason)

    def _log(self, client: object, reason: HandshakeFailure, cause: str) -> None:
        now = self._clock()
        host, port = _host_and_port(client)
        last_lines = self._last_lines[reason]
        while last_lines and now - next(iter(last_lines.values())) >= LOG_INTERVAL_SECONDS:
            del last_lines[next(iter(last_lines))]
        if host in last_lines or len(last_lines) >= MAX_LINES_PER_INTERVAL:
            self._suppressed[reason] = self._suppressed.get(reason, 0) + 1
            return
        last_lines[host] = now
        suppressed = self._suppressed.pop(reason, 0)
        # A warning would make each port scan look like a problem of podsettle.
        log.info(
            "TLS handshake with %s%s failed: %s%s",
            host,
            f" port {port}" if port is not None else "",
            cause,
            f" ({suppressed} more of this kind since the last line)" if suppressed else "",
        )


_INVALID = {
    "http request": "the client sent HTTP without TLS; use https://",
    "unsupported protocol": "the client supports no TLS version that podsettle accepts; "
    "podsettle accepts TLS 1.2 and 1.3",
}
"""What some errors of OpenSSL mean."""


def _host_and_port(address: object) -> tuple[str, int | None]:
    """Return the host and the port of a socket's address for a message."""
    if not isinstance(address, tuple) or len(address) < 2:
        return "an unknown client", None
    host, port = address[0], address[1]
    ip = ip_address(host)
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
        # A socket for all addresses shows IPv4 addresses in this way.
        host = str(ip.ipv4_mapped)
    return host, port
