"""What a client would say to the certificate that is served: a TLS handshake in memory."""

from __future__ import annotations

import ssl


def objection(context: ssl.SSLContext, host: str, bundle: bytes) -> str:
    """Why a client that trusts `bundle` (PEM) alone would not talk to `host`; empty if it would.

    It is OpenSSL that judges, over a whole handshake, by the clock as it is now: the chain, the
    name, the validity and the key at once. No connection is made and nothing is waited for.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Go, which the API server is written in, ends a chain at any certificate that it is told to
    # trust (`crypto/x509`, Certificate.Verify); OpenSSL wants a self-signed one unless told so.
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if not bundle.strip():
        return "no CA bundle is registered"
    try:
        client.load_verify_locations(cadata=bundle.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError):
        return "the CA bundle holds no certificate in PEM"
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server, server_hostname=host)
    serving = context.wrap_bio(to_server, to_client, server_side=True)
    # Two flights each way are the most that TLS 1.2 needs.
    for side in (asking, serving) * 3:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
        except ssl.SSLError as error:
            return error.reason or str(error)
        if side is asking:
            return ""
    return "the handshake came to no end"
