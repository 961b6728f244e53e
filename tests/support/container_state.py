"""What a container of a test is doing."""

from __future__ import annotations

import signal

from tests.support.runc import Container
from tests.support.waiting import await_that


def await_ready(container: Container) -> None:
    assert container.read_line() == "ready"
    # A shell starts the command before it sets its own traps. Until then, PID 1 ignores signals.
    if container.pid and "linger" not in container.status("Name"):
        await_that(lambda: has_traps(container), "the traps were set")
    # bash may lose a signal that arrives when it begins to wait.
    await_that(lambda: container.status("State")[0] == "S", "it waits")
    await_that(lambda: all(c[0] in "SZ" for c in container.children().values()), "so do the others")


def has_traps(container: Container) -> bool:
    """Return whether the shell wrapper has set its last trap, or already ignores that signal."""
    fields = (container.status(name) for name in ("SigCgt", "SigIgn"))
    return any(int(field, 16) >> (signal.SIGWINCH - 1) & 1 for field in fields)
