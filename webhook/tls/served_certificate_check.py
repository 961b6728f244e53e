"""Verification of the served certificate by a TLS handshake in memory."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable

from webhook.client_tls_context import verify_as_kubectl


def verify_error(context: ssl.SSLContext, host: str, bundle: bytes) -> str:
    """Return why a client would refuse the certificate of `context`, or an empty text.

    The client connects to `host` and trusts only the CAs in `bundle` (PEM). It verifies the chain,
    the name, the key and the validity at the current time. Client and server exchange their
    handshake through two memory buffers, without a connection.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    verify_as_kubectl(client)
    if not bundle.strip():
        return "no CA bundle is registered"
    try:
        client.load_verify_locations(cadata=bundle.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError):
        return "the CA bundle has no certificate in PEM"
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    try:
        connecting = client.wrap_bio(to_client, to_server, server_hostname=host)
    except ValueError as error:  # The URL of a webhook can have any text as its host.
        return f"{host!r} is not the name of a host: {error}"
    serving = context.wrap_bio(to_server, to_client, server_side=True)
    # TLS 1.2 has at most two flights of messages in each direction. The client's third step reads
    # the server's last flight.
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


def trust_errors(
    context: ssl.SSLContext,
    registered: Iterable[tuple[str, bytes]],
    verify: Callable[[ssl.SSLContext, str, bytes], str] = verify_error,
) -> list[str]:
    """Return a message for each host and bundle with which a client would refuse the certificate.

    Each of them costs a handshake, and usually all are equal, so equal ones are verified once.
    """
    errors = ((host, verify(context, host, bundle)) for host, bundle in dict.fromkeys(registered))
    return [f"{host}: {error}" for host, error in errors if error]
