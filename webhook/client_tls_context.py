"""The TLS context with which podsettle connects to API servers and registries."""

from __future__ import annotations

import ssl


def client_context() -> ssl.SSLContext:
    """Return a TLS context for clients that accepts the same CA certificates as kubectl.

    It verifies the certificate's chain, host name and dates. It trusts the CAs of the operating
    system, or the CAs in the file that the environment variable SSL_CERT_FILE names.
    """
    context = ssl.create_default_context()
    verify_as_kubectl(context)
    return context


def verify_as_kubectl(context: ssl.SSLContext) -> None:
    """Set the three checks of certificates in which Python differs from kubectl and API servers.

    Python 3.13 and later set VERIFY_X509_STRICT by default. Go clients have no equivalent check.
    The flag rejects CAs without key identifiers, such as those of EKS clusters created on
    Kubernetes 1.16 or earlier. It also rejects CAs without key usage, which `openssl req -x509`
    creates. Before 3.13, Python does not trust a CA that another CA issued unless it has that one
    too. Go does. Python takes the common name of a certificate without a name in subjectAltName. Go
    has not done so since 1.15.
    """
    context.hostname_checks_common_name = False
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
