"""How podsettle verifies the certificates of servers that are not its own."""

from __future__ import annotations

import ssl


def client_context() -> ssl.SSLContext:
    """A context that verifies chain, name and validity, and takes the CAs that kubectl takes.

    It trusts the operating system's certificates, or those that SSL_CERT_FILE names.

    Python 3.13 and later set VERIFY_X509_STRICT by default, which no client in Go does. It refuses
    CAs without key identifiers, as EKS made them for clusters created on Kubernetes 1.16 or
    earlier, and CAs without key usage, as a plain `openssl req -x509` makes them.
    """
    context = ssl.create_default_context()
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
