"""A kubelet's side of `kubectl logs`: a real TLS server on real sockets, whose certificate may not
exist yet.

What it sends is what `ReadLogs` of k8s.io/cri-client/pkg/logs sends of a log file in CRI format: a
stamp in front of a line, none in front of the later parts of a long one; nothing at all, not even
the head of the answer, before there is something to send.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, urlsplit

import trustme

ALERT_INTERNAL_ERROR = bytes((0x15, 3, 3, 0, 2, 2, 80))
"""What Go's crypto/tls sends in place of a ServerHello where GetCertificate fails."""

_SECOND = 1_000_000_000


class Record(NamedTuple):
    """A line of a log file in CRI format."""

    at: int
    """Nanoseconds since 1970."""
    text: bytes
    partial: bool = False
    """The line goes on in the next record (tag P)."""


def read_logs(records: Sequence[Record], since: int, stamps: bool) -> Iterator[bytes]:
    """Yield what the kubelet sends of each record."""
    at_line_start = True
    for record in records:
        sent = record.text if record.partial else record.text + b"\n"
        if stamps and at_line_start:
            sent = stamp(record.at) + sent
        # Also of what is skipped, so that the rest of a line may come without its beginning.
        at_line_start = not record.partial or not record.text
        yield sent if record.at >= since else b""


def stamp(at: int) -> bytes:
    """RFC3339NanoFixed, and the blank behind it."""
    return f"{datetime.fromtimestamp(at // _SECOND, UTC):%FT%T}.{at % _SECOND:09}Z ".encode()


class Log:
    """The log of one run of a container."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.ended = False
        self.changed = threading.Condition()

    def write(self, *records: Record) -> None:
        """Append records to the log."""
        with self.changed:
            self.records += records
            self.changed.notify_all()

    def end(self) -> None:
        """End the log."""
        with self.changed:
            self.ended = True
            self.changed.notify_all()


class Kubelet:
    """A fake kubelet at `port` of 127.0.0.1. `listening` starts it."""

    node = "new-node"

    def __init__(self) -> None:
        self.certificate_issued = True
        self.handshakes_refused = 0
        self.queries: list[dict[str, str]] = []
        """The query of each request for a log."""
        self.break_after: list[int] = []
        """Where the next streams break: bytes of the whole log with its stamps. Then none does."""
        self.refuse: tuple[int, str] | None = None
        """The status and text to answer instead of a log."""
        self.current, self.previous = Log(), Log()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        trustme.CA().issue_cert("node.test").configure_cert(self._tls)

    @classmethod
    @contextmanager
    def listening(cls) -> Iterator[Self]:
        """Run a fake kubelet while the block runs."""
        kubelet = cls()
        thread = threading.Thread(target=kubelet._accept, daemon=True)
        thread.start()
        try:
            yield kubelet
        finally:
            kubelet._listener.shutdown(socket.SHUT_RDWR)
            kubelet._listener.close()
            for log in (kubelet.current, kubelet.previous):
                log.end()
            thread.join()

    @property
    def node_status(self) -> dict[str, Any]:
        """Where the API server finds it."""
        return {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
        }

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            if not self.certificate_issued:
                read_client_hello(connection)
                connection.sendall(ALERT_INTERNAL_ERROR)
                self.handshakes_refused += 1
                return
            with self._tls.wrap_socket(connection, server_side=True) as secured:
                _Handler(secured, ("127.0.0.1", 0), self)  # type: ignore[arg-type]


def read_client_hello(connection: socket.socket) -> None:
    """Read it whole: a socket that is closed with something unread resets the connection."""
    head = connection.recv(5, socket.MSG_WAITALL)
    connection.recv(int.from_bytes(head[3:5]), socket.MSG_WAITALL)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Kubelet  # type: ignore[assignment]

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        assert url.path.startswith("/containerLogs/"), url.path
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        self.server.queries.append(query)
        self.close_connection = True
        if self.server.refuse is not None:
            status, text = self.server.refuse
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())
            return
        self._limit = self.server.break_after.pop(0) if self.server.break_after else None
        self._begun = False
        log = self.server.previous if "previous" in query else self.server.current
        if self._send_all(log, query):
            self._begin()
            self.wfile.write(b"0\r\n\r\n")

    def _send_all(self, log: Log, query: dict[str, str]) -> bool:
        since = datetime.fromisoformat(query.get("sinceTime", "1970-01-01T00:00:00Z")).timestamp()
        if "sinceSeconds" in query:
            since = time.time() - int(query["sinceSeconds"])
        # Whole lines only, as long as no test asks for the tail of a log with long lines.
        older = max(len(log.records) - int(query["tailLines"]), 0) if "tailLines" in query else 0
        done = 0
        while True:
            with log.changed:
                while len(log.records) == done and not log.ended and "follow" in query:
                    log.changed.wait()
                records, ended = list(log.records), log.ended or "follow" not in query
            stamps = "timestamps" in query
            whole = list(read_logs(records, 0, stamps))
            sent = list(read_logs(records, int(since) * _SECOND, stamps))
            sent[:older] = [b""] * older
            for passed_by, data in zip(whole[done:], sent[done:], strict=True):
                if self._limit is not None and not data:
                    self._limit -= len(passed_by)
                if not self._send(data):
                    return False
            done = len(records)
            if ended:
                return True

    def _send(self, data: bytes) -> bool:
        """Return whether the connection is still open."""
        broken = self._limit is not None and len(data) >= self._limit
        if broken:
            data = data[: max(self._limit or 0, 0)]
        if data:
            self._begin()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        if self._limit is not None:
            self._limit -= len(data)
        if broken:
            self.connection.shutdown(socket.SHUT_RDWR)
        return not broken

    def _begin(self) -> None:
        if not self._begun:
            self._begun = True
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""
