"""The worker's side of the socket, and namespaces that are requested over it."""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections.abc import Iterator, Mapping

from webhook.core.cluster.view import Namespace
from webhook.server.preview.messages import (
    HEADER_BYTES,
    NamespaceFound,
    NamespaceNeeded,
    ToServer,
    ToWorker,
    decode_for_worker,
    frame,
    frame_length,
)

MAX_NAMESPACE_CHARACTERS = 63
"""RFC 1123. A longer name cannot be a namespace, so the server is not asked for it."""
_STACK_BYTES = 256 * 1024


class UnexpectedMessageError(Exception):
    """The server sent a message that does not fit the state of the run."""


class Channel:
    """The socket to the server. A thread reads it, and ends the process at the end of the data."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.stack_size(_STACK_BYTES)
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, message: ToServer) -> None:
        """Send a message."""
        self.send_frame(frame(message))

    def send_frame(self, encoded: bytes) -> None:
        """Send an encoded message."""
        self._connection.sendall(encoded)

    def receive(self) -> ToWorker:
        """Wait for the next message. Raises msgspec.DecodeError."""
        return decode_for_worker(self._received.get())

    def _read(self) -> None:
        try:
            with self._connection.makefile("rb") as stream:
                while header := stream.read(HEADER_BYTES):
                    self._received.put(stream.read(frame_length(header)))
        finally:
            # Not sys.exit: the main thread may be busy, and there is nothing to save.
            os._exit(0)


class Namespaces(Mapping[str, Namespace]):
    """The namespaces of the view, each requested once per run. Iterates over the received ones."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._known: dict[str, Namespace | None] = {}

    def __getitem__(self, name: str) -> Namespace:
        if name not in self._known:
            self._known[name] = self._request(name)
        found = self._known[name]
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return (name for name, found in self._known.items() if found is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _request(self, name: str) -> Namespace | None:
        if len(name) > MAX_NAMESPACE_CHARACTERS:
            return None
        self._channel.send(NamespaceNeeded(name))
        answer = self._channel.receive()
        if not isinstance(answer, NamespaceFound):
            raise UnexpectedMessageError(repr(type(answer)))
        return answer.namespace
