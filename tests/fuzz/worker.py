"""A process that runs one target, and measures its CPU time."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection
from time import thread_time

from tests.fuzz.targets import TARGETS, Target

HARD_END_SECONDS = 10.0
"""Of CPU for one input, whatever its length; waited for three times as long on a busy machine."""


class Worker:
    """A process that runs one target, so that an input without end can be ended."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._name, other), daemon=True)
        self._process.start()
        self._pipe.recv()

    def ask(self, body: bytes) -> float | str:
        """The CPU seconds that an input took, or what it raised."""
        self._pipe.send(body)
        if self._pipe.poll(3 * HARD_END_SECONDS):
            try:
                answer: float | str = self._pipe.recv()
            except EOFError:
                self._start()
                return "ended: the process died"
            return answer
        self._process.kill()
        self._process.join()
        self._start()
        return 3 * HARD_END_SECONDS

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()


def _serve(name: str, pipe: Connection) -> None:
    target = TARGETS[name]
    pipe.send("ready")
    for body in _received(pipe):
        pipe.send(_measured(target, body))


def _received(pipe: Connection) -> Iterator[bytes]:
    while True:
        try:
            yield pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return


def _measured(target: Target, body: bytes) -> float | str:
    start = thread_time()
    try:
        target.run(body)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return thread_time() - start
