"""Loading of a certificate and its key from memory into a TLS context."""

from __future__ import annotations

import os
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import NamedTemporaryFile


def load_pem(context: ssl.SSLContext, certificate_pem: bytes, key_pem: bytes) -> None:
    """Make a context use a certificate from the next handshake on. Raises ssl.SSLError.

    Works on Linux only. Call this on the thread that does the handshakes, because a handshake on
    another thread could begin while the context has the new certificate but not its key.
    """
    # `load_cert_chain` takes paths only. Files in memory work with a read-only root filesystem and
    # leave no key on disk.
    with _in_memory_file(certificate_pem) as certificate, _in_memory_file(key_pem) as key:
        # Without a password, OpenSSL asks the terminal for that of an encrypted key.
        context.load_cert_chain(certificate, key, password="")


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
