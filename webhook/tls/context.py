"""The server's TLS context. A key pair is loaded into it from memory."""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import NamedTemporaryFile

from webhook.tls.issuing import KeyPair

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


def load_pem(context: ssl.SSLContext, certificate_pem: bytes, key_pem: bytes) -> None:
    """Make a context serve a certificate from the next handshake on. Raises ssl.SSLError.

    Works on Linux only. Call this on the thread that does the handshakes, because a handshake on
    another thread could begin while the context has the new certificate but not its key.
    """
    # `load_cert_chain` takes paths only. Files in memory work with a read-only root filesystem and
    # leave no key on disk.
    with _in_memory_file(certificate_pem) as certificate, _in_memory_file(key_pem) as key:
        context.load_cert_chain(certificate, key)


@contextmanager
def _in_memory_file(content: bytes) -> Iterator[str]:
    """Yield the path of a file in memory. The file exists until the block ends.

    Where there are none, as on macOS, it is a temporary file that only this user can read.
    """
    if sys.platform != "linux":
        with NamedTemporaryFile() as temporary:
            temporary.write(content)
            temporary.flush()
            yield temporary.name
        return
    descriptor = os.memfd_create("podsettle", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{descriptor}"
