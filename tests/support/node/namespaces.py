"""Entry to a node's namespaces.

Three processes stand between the caller and the command:

- this one forwards signals;
- the keeper (keeper.py) makes the work directory and the cgroups, and removes them at the end, also
  if this process was killed;
- init (init.py) is PID 1 inside. When it ends, the kernel ends all that runs in the namespaces.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def enter(command: Sequence[str]) -> int:
    """Run a command in new namespaces, and return its exit code."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {*FORWARDED, signal.SIGCHLD})
    # A session of its own: the terminal sends Ctrl-C to this process only, which sends it once.
    keeper = subprocess.Popen(
        [sys.executable, "-m", "tests.support.node.keeper", str(os.getpid()), *command],
        start_new_session=True,
    )
    while True:
        received = signal.sigwait({*FORWARDED, signal.SIGCHLD})
        if received != signal.SIGCHLD:
            keeper.send_signal(received)
        elif (code := keeper.poll()) is not None:
            return code if code >= 0 else 128 - code
