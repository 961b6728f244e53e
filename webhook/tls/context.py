"""The server's TLS context. A key pair is loaded into it from memory."""

from __future__ import annotations

import ssl

from webhook.tls.issuing import KeyPair
from webhook.tls.load_pem import load_pem

# All suites of TLS 1.3 are AEAD. Suites with CBC were open to padding oracles (CVE-2013-0169), and
# Go clients, such as the API server, offer these AEAD suites first. FIPS 140 allows AES-GCM.
_TLS_1_2_SUITES = "ECDHE+AESGCM:ECDHE+CHACHA20"


def server_context() -> ssl.SSLContext:
    """Create a server context for TLS 1.2 or later with AEAD suites only, without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_TLS_1_2_SUITES)
    return context


def load_key_pair(context: ssl.SSLContext, pair: KeyPair) -> None:
    """Make a context serve this key pair from the next handshake on. See `load_pem`."""
    load_pem(context, pair.certificate_pem, pair.key_pem)
