"""Verification of the served certificate as a client does it: a TLS handshake in memory."""

from __future__ import annotations

import ssl


def verify_error(context: ssl.SSLContext, host: str, bundle: bytes) -> str:
    """Return why a client that trusts only `bundle` (PEM) would refuse `host`; empty if it accepts.

    OpenSSL verifies the chain, the name, the validity at the current time and the key in one
    handshake between two memory buffers. No connection is opened.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The API server is written in Go, which accepts a chain that ends at any trusted certificate
    # (`crypto/x509`, Certificate.Verify). By default OpenSSL accepts a self-signed one only.
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if not bundle.strip():
        return "no CA bundle is registered"
    try:
        client.load_verify_locations(cadata=bundle.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError):
        return "the CA bundle has no certificate in PEM"
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    connecting = client.wrap_bio(to_client, to_server, server_hostname=host)
    serving = context.wrap_bio(to_server, to_client, server_side=True)
    # TLS 1.2 needs at most two flights in each direction.
    for side in (connecting, serving) * 3:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
        except ssl.SSLError as error:
            return error.reason or str(error)
        if side is connecting:
            return ""
    return "the handshake did not complete"
