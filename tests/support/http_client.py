"""A server in this process, and a client that sends and receives single bytes."""

from __future__ import annotations

import gc
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from typing import Any, Self

import trustme

from tests.support.waiting import TIMEOUT_SECONDS
from webhook.server.components import Components
from webhook.server.run import listen, serve


class Client:
    """A TLS connection to a server.

    No two threads may use it at the same time. OpenSSL demands that, and an SSLSocket has no lock
    in many releases of Python. A read can then report the end of a connection that is open.
    """

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext) -> None:
        plain = socket.create_connection(address, timeout=TIMEOUT_SECONDS)
        self.socket = context.wrap_socket(plain, server_hostname=address[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def send(self, text: str | bytes) -> None:
        self.socket.sendall(text.encode() if isinstance(text, str) else text)

    def get(self, path: str) -> HTTPResponse:
        """Send a request without a body, and return its answer."""
        self.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")
        return self.answer()

    def answer(self) -> HTTPResponse:
        """Read the next answer. Its body is in `.body`."""
        found = HTTPResponse(self.socket)
        found.begin()
        found.body = found.read()  # type: ignore[attr-defined]
        return found

    def is_closed(self) -> bool:
        """Wait until the server closes the connection. Return False if it sends data first."""
        try:
            return self.socket.recv(1) == b""
        except (ssl.SSLEOFError, ConnectionError):
            return True

    def close(self) -> None:
        self.socket.close()


class InProcess:
    """A server that runs on another thread."""

    def __init__(
        self,
        components: Components,
        address: tuple[str, int],
        web_address: tuple[str, int],
        ca: trustme.CA,
    ) -> None:
        self.components = components
        self.address = address
        self.web_address = web_address
        self.drain = components.review_server.handler.drain
        self.ca = ca
        self._clients: list[Client] = []
        self.thread: threading.Thread

    def connect(self, certificate: trustme.LeafCert | None = None, *, web: bool = False) -> Client:
        """Connect to the port of reviews, or to the web port."""
        context = ssl.create_default_context()
        self.ca.configure_trust(context)
        if certificate is not None:
            certificate.configure_cert(context)
        client = Client(self.web_address if web else self.address, context)
        self._clients.append(client)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.drain.idle_seconds = 0
        self.drain.start()
        self.thread.join(TIMEOUT_SECONDS)
        assert not self.thread.is_alive()


@contextmanager
def in_process(
    components: Components, context: ssl.SSLContext | None = None
) -> Iterator[InProcess]:
    """Serve while the block runs."""
    listeners = [listen("127.0.0.1", 0, "") for _ in range(2)]
    address, web_address = (listener.getsockname() for listener in listeners)
    server = InProcess(components, address, web_address, trustme.CA())
    if context is None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2  # Debian's Python has no default
    server.ca.issue_cert("127.0.0.1").configure_cert(context)
    server.thread = threading.Thread(target=serve, args=(components, context, *listeners))
    threshold = gc.get_threshold()
    server.thread.start()
    try:
        yield server
    finally:
        server.close()
        # A server tunes the garbage collector. Later tests need the defaults.
        gc.unfreeze()
        gc.set_threshold(*threshold)


def mutate(body: Any, query: str = "", *, length: int | None = None) -> bytes:
    """Return the bytes of a request to /mutate. `length` replaces the true Content-Length."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = (
        f"POST /mutate{query} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content) if length is None else length}\r\n\r\n"
    )
    return head.encode() + content


def review_in(answer: HTTPResponse) -> dict[str, Any]:
    """Return the response of an answered review."""
    assert answer.status == 200, answer.body  # type: ignore[attr-defined]
    response: dict[str, Any] = json.loads(answer.body)["response"]  # type: ignore[attr-defined]
    assert response["allowed"] is True
    return response
