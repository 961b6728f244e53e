"""Whether the API server, by what it is told to trust, accepts what is served."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from webhook.cluster.webhook_configuration import RegisteredWebhook
from webhook.tls.source import CertificateSource
from webhook.tls.verify import verify_error

MAX_AGE_SECONDS = 1.0
"""For which a verdict holds. A handshake costs milliseconds of the only thread, and anybody may
ask for /readyz as often as they like."""


class TrustCheck:
    """The verdict on the certificate served, for each webhook that is registered.

    It is made anew at once when either of them changes, and else when it is a second old: the
    clock, too, can make a certificate unacceptable.
    """

    def __init__(
        self, certificates: CertificateSource, clock: Callable[[], float] = monotonic
    ) -> None:
        self._certificates = certificates
        self._clock = clock
        self._made = 0.0
        self._of: object = None
        self._errors: list[str] = []

    def errors(self, entries: tuple[RegisteredWebhook, ...]) -> list[str]:
        """Why calls of these webhooks would fail; empty where they would not."""
        context = self._certificates.context
        of = (context, self._certificates.expires, entries)
        if self._of != of or self._clock() - self._made >= MAX_AGE_SECONDS:
            self._errors = [
                f"{entry.host}: {reason}"
                for entry in entries
                if (reason := verify_error(context, entry.host, entry.bundle))
            ]
            self._of, self._made = of, self._clock()
        return self._errors
