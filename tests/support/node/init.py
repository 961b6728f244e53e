"""PID 1 of a node's namespaces: it starts the command, reaps orphans and forwards signals."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from tests.support.node import cgroups, mounts, network, write_limit
from tests.support.node.inside import mark
from tests.support.node.linux import Namespace, end_with_parent, unshare
from tests.support.node.work_directory import cgroups_of, limited_devices
from tools.kube_versions import KUBE_VERSION, node_line

NODE_NAME = "node"
_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD}
_SYSTEM_DIRECTORIES = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin")
_CANNOT_START = 126


def main(work: Path, command: Sequence[str]) -> NoReturn:
    """Set up the namespaces, run the command, and exit as it does. The signals are blocked."""
    code = _CANNOT_START
    try:
        end_with_parent(signal.SIGKILL)
        # Before the cgroup namespace hides the file.
        inherited = write_limit.open_file(cgroups_of(work), limited_devices(work))
        _set_up(work)
        code = _run(command, inherited)
    except Exception:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        # Not sys.exit: the parent's blocks would be left, and would remove the work directory.
        os._exit(code)


def _set_up(work: Path) -> None:
    cgroups.join(cgroups_of(work))
    unshare(Namespace.CGROUP | Namespace.IPC | Namespace.MOUNT | Namespace.NETWORK | Namespace.UTS)
    mounts.mount_all(work)
    cgroups.mount()
    network.set_up(NODE_NAME)
    mark()


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    # The API server that the command starts is of the kubelet's release.
    own = {"PATH": _path(), "TMPDIR": "/run/tmp", KUBE_VERSION: node_line()}
    Path("/run/tmp").mkdir(mode=0o1777)
    started = os.posix_spawnp(command[0], [*command], os.environ | own | environment, setsigmask=())
    while True:
        received = signal.sigwait(_SIGNALS)
        if received != signal.SIGCHLD:
            os.kill(started, received)
            continue
        # One signal stands for all children that ended since the last one.
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            process, status = ended
            if process == started:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code


def _path() -> str:
    """Return PATH with the directories of mount, ip, iptables and runc."""
    given = [part for part in os.environ.get("PATH", "").split(":") if part]
    return ":".join(dict.fromkeys([*given, *_SYSTEM_DIRECTORIES]))
