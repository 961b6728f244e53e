"""What may stand in front of an API server: it alerts, it cuts, it is gone."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

from tests.support.fake_kubelet import ALERT_INTERNAL_ERROR, read_client_hello


class Front:
    """Passes TCP on to a server. `before` makes one."""

    def __init__(self, port: int) -> None:
        self.alerts = False
        """Whether to answer a ClientHello with alert 80."""
        self._far = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: set[socket.socket] = set()

    @classmethod
    @contextmanager
    def before(cls, port: int) -> Iterator[Self]:
        """A front of the server at this port, while the block runs."""
        front = cls(port)
        thread = threading.Thread(target=front._accept, daemon=True)
        thread.start()
        try:
            yield front
        finally:
            front._listener.shutdown(socket.SHUT_RDWR)
            front._listener.close()
            front.cut()
            thread.join()

    def cut(self) -> None:
        """End every connection that is open."""
        for end in list(self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with near, suppress(OSError):
            if self.alerts:
                read_client_hello(near)
                near.sendall(ALERT_INTERNAL_ERROR)
                return
            with socket.create_connection(("127.0.0.1", self._far)) as far:
                self._open |= {near, far}
                back = threading.Thread(target=_pass, args=(far, near), daemon=True)
                back.start()
                _pass(near, far)
                back.join()
                self._open -= {near, far}


def _pass(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
