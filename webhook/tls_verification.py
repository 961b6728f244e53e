"""Verification of the certificates of API servers and registries."""

from __future__ import annotations

import ssl


def client_context() -> ssl.SSLContext:
    """Return a context that verifies chain, name and validity, and accepts the same CAs as kubectl.

    It trusts the operating system's CAs, or those in the file SSL_CERT_FILE.

    Python 3.13 and later set VERIFY_X509_STRICT by default. Go clients have no such check. It
    rejects CAs without key identifiers, as in EKS clusters created on Kubernetes 1.16 or earlier,
    and CAs without key usage, as `openssl req -x509` creates them.
    """
    context = ssl.create_default_context()
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
