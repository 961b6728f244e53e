"""Servers that record what reaches them: an API server with TLS, and a proxy."""

from __future__ import annotations

import json
import select
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

# What `kubectl create token` reads of the answer.
_ANSWER = json.dumps(
    {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "status": {"token": "t"}}
).encode()
_REJECTED = json.dumps(
    {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": 401,
        "reason": "Unauthorized",
    }
).encode()


class Seen(NamedTuple):
    """A request that reached a server."""

    server: str
    method: str
    path: str
    authorization: str
    impersonation: tuple[tuple[str, str], ...]
    name: str
    """The server name of the TLS handshake."""
    client: str
    """The common name of the client's certificate."""


class _Server(ThreadingHTTPServer):
    """An HTTP server, with TLS if there is a context for it."""

    def __init__(
        self, handler: type[BaseHTTPRequestHandler], context: ssl.SSLContext | None
    ) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.open: list[socket.socket] = []
        self.context = context

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return int(self.server_address[1])

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection. Its handshake is done by the thread that reads from it."""
        accepted, address = super().get_request()
        if self.context is None:
            return accepted, address
        self.open.append(
            self.context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
        )
        return self.open[-1], address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that refuse the certificate, or end their connections."""


class Handler(BaseHTTPRequestHandler):
    """A handler of requests that answers in JSON, and writes no log."""

    def answer(self, status: int, body: bytes) -> None:
        """Send an answer in JSON."""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Write no log."""


class Recorder(_Server):
    """An HTTP server that records requests, and answers 401 to some tokens."""

    def __init__(self, name: str, seen: list[Seen], context: ssl.SSLContext | None = None) -> None:
        super().__init__(_Recording, context)
        self.name = name
        self.seen = seen
        self.rejected: set[str] = set()

    def use_certificate(self, file: Path) -> None:
        """Serve another certificate from now on, and end the connections that are open."""
        assert self.context is not None
        self.context.load_cert_chain(file)
        for connection in self.open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.open.clear()


class _Recording(Handler):
    protocol_version = "HTTP/1.1"
    server: Recorder

    def handle_request(self) -> None:
        """Record a request and answer it."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        connection = self.connection
        name, client = "", ""
        if isinstance(connection, ssl.SSLSocket):
            name = str(getattr(connection, "requested_name", None) or "")
            subject: Any = (connection.getpeercert() or {}).get("subject", ())
            client = dict(pair for entry in subject for pair in entry).get("commonName", "")
        authorization = self.headers.get("Authorization", "")
        impersonation = [
            (key.lower(), value)
            for key, value in self.headers.items()
            if key.lower().startswith("impersonate-")
        ]
        name_and_path = (self.server.name, self.command, self.path.partition("?")[0])
        self.server.seen.append(
            Seen(*name_and_path, authorization, tuple(sorted(impersonation)), name, client)
        )
        rejected = authorization in self.server.rejected
        self.answer(401 if rejected else 201, _REJECTED if rejected else _ANSWER)

    do_GET = do_POST = handle_request  # noqa: N815 (the names are those of http.server)


class RecordingProxy(_Server):
    """A proxy that records where it was asked to go. It may refuse to open tunnels."""

    def __init__(self, context: ssl.SSLContext | None = None, refusal: int = 0) -> None:
        super().__init__(_Proxying, context)
        self.refusal = refusal
        self.asked: list[tuple[str, str]] = []


class _Proxying(Handler):
    server: RecordingProxy

    def do_CONNECT(self) -> None:
        """Open a tunnel."""
        self.server.asked.append((self.path, self.headers.get("Proxy-Authorization", "")))
        if self.server.refusal:
            self.answer(self.server.refusal, b"")
            return
        # Names of the tests have no address: all of them are this machine.
        port = int(self.path.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as target:
            self.send_response(200)
            self.end_headers()
            sockets = [self.connection, target]
            while True:
                readable, _, _ = select.select(sockets, [], [], 10)
                for each in readable:
                    data = each.recv(65536)
                    if not data:
                        return
                    (target if each is self.connection else self.connection).sendall(data)
                if not readable:
                    return

    def handle_request(self) -> None:
        """Answer a request for a server without TLS in its place."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        target = f"{self.command} {self.path.partition('?')[0]}"
        self.server.asked.append((target, self.headers.get("Proxy-Authorization", "")))
        self.answer(201, _ANSWER)

    do_GET = do_POST = handle_request  # noqa: N815 (the names are those of http.server)


@contextmanager
def serving(*servers: ThreadingHTTPServer) -> Iterator[None]:
    """Run servers in threads."""
    threads = [Thread(target=server.serve_forever, args=(0.02,)) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for server in servers:
            with suppress(OSError):
                server.shutdown()
                server.server_close()
        for thread in threads:
            thread.join()


def recording_context(certificate: Path, key: Path, client_ca: Path) -> ssl.SSLContext:
    """Return a TLS context that takes client certificates, and notes which name was asked for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(client_ca)
    context.verify_mode = ssl.CERT_OPTIONAL

    def note(connection: ssl.SSLSocket, name: str | None, _context: ssl.SSLContext) -> None:
        connection.requested_name = name  # type: ignore[attr-defined]

    context.sni_callback = note  # type: ignore[assignment]
    return context
