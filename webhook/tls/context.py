"""A server's TLS context, and certificates that are loaded into one from memory."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

from webhook.tls.certificates import KeyPair


def server_context() -> ssl.SSLContext:
    """A context without a certificate: TLS 1.2 or later."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def load(context: ssl.SSLContext, pair: KeyPair) -> None:
    """Make a context serve this certificate from the next handshake on.

    To be called on the thread that makes the handshakes: for a moment the context has the new
    certificate and no key. Linux only.
    """
    # Python takes paths alone. A pod's root file system is read-only, and a key that never was in
    # a file cannot be left behind in one.
    with _in_memory(pair.certificate_pem) as certificate, _in_memory(pair.key_pem) as key:
        context.load_cert_chain(certificate, key)


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    descriptor = os.memfd_create("podsettle", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{descriptor}"
