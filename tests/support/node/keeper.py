"""The process outside of the namespaces that removes what they leave behind."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from tests.support.node import init
from tests.support.node.cgroups import CgroupError
from tests.support.node.linux import Namespace, end_with_parent, unshare
from tests.support.node.work_directory import work_directory

_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD}


def keep(parent: int, command: Sequence[str]) -> int:
    """Run a command in new namespaces, remove all that it leaves, and return its exit code."""
    # Blocked, so that no signal interrupts the removal.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    end_with_parent(signal.SIGTERM)
    with work_directory() as directory:
        unshare(Namespace.PID)
        process = os.fork()
        if process == 0:
            init.main(directory, command)
        return _wait(process, parent)


def _wait(process: int, parent: int) -> int:
    while True:
        if os.getppid() != parent:
            os.kill(process, signal.SIGKILL)
        received = signal.sigwait(_SIGNALS)
        if received != signal.SIGCHLD:
            os.kill(process, received)
            continue
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    try:
        code = keep(int(sys.argv[1]), sys.argv[2:])
    except CgroupError as error:
        sys.exit(str(error))
    sys.exit(code)
