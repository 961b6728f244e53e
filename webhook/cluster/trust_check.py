"""Check that the API server would trust the certificate that podsettle serves."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from time import monotonic

from webhook.cluster.webhook_configuration import RegisteredWebhook
from webhook.tls.served_certificate_check import trust_errors, verify_error
from webhook.tls.source import CertificateSource

# The result is cached because a check takes milliseconds of the only thread: it makes a TLS
# handshake in memory. Any client may request /readyz at any rate.
MAX_AGE_SECONDS = 1.0


class TrustCheck:
    """A cached check of the served certificate against the registered caBundles.

    The check runs again when the certificate or a registration changes. It also runs again when its
    result is older than `MAX_AGE_SECONDS`, because certificates expire. `verify` takes the served
    TLS context, a host and a bundle, and returns an error or an empty text.
    """

    def __init__(
        self,
        certificates: CertificateSource,
        clock: Callable[[], float] = monotonic,
        verify: Callable[[ssl.SSLContext, str, bytes], str] = verify_error,
    ) -> None:
        self._certificates = certificates
        self._verify = verify
        self._clock = clock
        self._checked_at = 0.0
        self._checked_inputs: object = None
        self._errors: list[str] = []

    def errors(self, webhooks: tuple[RegisteredWebhook, ...]) -> list[str]:
        """Return an error for each host and bundle with which the API server would refuse it."""
        context = self._certificates.context
        inputs = (context, self._certificates.expires, webhooks)
        is_outdated = self._clock() - self._checked_at >= MAX_AGE_SECONDS
        if self._checked_inputs != inputs or is_outdated:
            self._errors = trust_errors(context, webhooks, self._verify)
            self._checked_inputs, self._checked_at = inputs, self._clock()
        return self._errors
