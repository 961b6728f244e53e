"""Run a program that does not outlive its parent: `python leash.py PARENT_PID PROGRAM ARGUMENT...`.

A pytest that is killed cannot stop its servers; the kernel does it instead. The request survives
the exec. It is Linux's own: elsewhere the program runs without it.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask to be killed with the parent, then become the program."""
    parent, program = int(sys.argv[1]), sys.argv[2]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # It died before it could be asked about.
        sys.exit("the parent is gone")
    os.execv(program, sys.argv[2:])


if __name__ == "__main__":
    main()
