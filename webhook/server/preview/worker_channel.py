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
"""The maximum length of a namespace's name (RFC 1123). A longer name is not sent to the server."""
_STACK_BYTES = 256 * 1024
"""The stack size of the thread that reads the socket. The default of several MiB would count
against the worker's memory limit."""


class UnexpectedMessageError(Exception):
    """The server sent a message that does not fit the state of the run."""


class Channel:
    """The socket to the server.

    A thread reads the socket, and ends the process when the socket is closed.
    """

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
            # os._exit ends the process even if the main thread is busy. There is nothing to save.
            os._exit(0)


class Namespaces(Mapping[str, Namespace]):
    """The namespaces of the view. Each one is requested once in a run, when it is first needed.

    Iteration yields only the namespaces that were requested and exist.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._answers: dict[str, Namespace | None] = {}

    def __getitem__(self, name: str) -> Namespace:
        if name not in self._answers:
            self._answers[name] = self._request(name)
        namespace = self._answers[name]
        if namespace is None:
            raise KeyError(name)
        return namespace

    def __iter__(self) -> Iterator[str]:
        return (name for name, namespace in self._answers.items() if namespace is not None)

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
