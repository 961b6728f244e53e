"""The files of the small images that pods of the node's tests run, and of the pause image."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tools.base_image import BUSYBOX, copy_libraries
from tools.build import tool
from webhook.linger.build import TARGETS, compile_c, host_arch

BASH = "/bin/bash"
CAPABLE = "/capable/cat"
"""BusyBox' `cat`, whose file has the capability NET_BIND_SERVICE."""
NET_BIND_SERVICE = 1 << 10
"""The capability in a set of capabilities."""
USER = "builder"
USER_ID, GROUP_ID = 1234, 4321

_SOURCES = Path(__file__).with_name("static")


class SmallImage(NamedTuple):
    """An image of a few files."""

    fill: Callable[[Path], None]
    """Write the files into an empty directory."""
    configuration: tuple[str, ...] = ()
    """Options of `buildah config`."""


def _write_busybox(root: Path) -> None:
    """Write BusyBox as the shell, and all its applets."""
    (root / "bin").mkdir()
    shutil.copy2(BUSYBOX, root / "bin/busybox")
    listed = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True)
    for applet in {*listed.stdout.split()} - {"busybox"}:
        (root / "bin" / applet).symlink_to("busybox")
    (root / "etc").mkdir()
    users = f"root:x:0:0::/root:/bin/sh\n{USER}:x:{USER_ID}:{GROUP_ID}::/tmp:/bin/sh\n"
    (root / "etc/passwd").write_text(users)
    (root / "etc/group").write_text(f"root:x:0:\n{USER}:x:{GROUP_ID}:\n")
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)


def _write_bash(root: Path) -> None:
    """Write the same with bash as the shell."""
    _write_busybox(root)
    for name in ("bash", "sh"):
        (root / "bin" / name).unlink(missing_ok=True)
    shutil.copy2(BASH, root / "bin/bash")
    (root / "bin/sh").symlink_to("bash")
    copy_libraries([root / "bin/bash"], root)


def _write_capable(root: Path) -> None:
    """Write BusyBox, and CAPABLE."""
    _write_busybox(root)
    program = root / CAPABLE.lstrip("/")
    program.parent.mkdir()
    shutil.copy2(BUSYBOX, program)
    # `struct vfs_cap_data` of revision 2, as setcap writes it for `cap_net_bind_service=ep`.
    revision, effective, none = 0x02000000, 1, 0
    value = struct.pack("<5I", revision | effective, NET_BIND_SERVICE, none, none, none)
    os.setxattr(program, "security.capability", value)


def _write_program(name: str, root: Path) -> None:
    """Write one static program, and nothing else."""
    compile_c(
        [_SOURCES / f"{name}.c"],
        root / name,
        target=TARGETS[host_arch()],
        flags=("-std=c11", "-D_GNU_SOURCE", "-Os", "-static", "-s"),
        directory=_SOURCES,
    )


def _write_tekton(root: Path) -> None:
    """Write Tekton's entrypoint where Tekton's own image has it."""
    (root / "ko-app").mkdir()
    shutil.copy2(tool("entrypoint"), root / "ko-app/entrypoint")
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)


IMAGES: Mapping[str, SmallImage] = {
    "pause": SmallImage(
        lambda root: _write_program("pause", root),
        ("--entrypoint", '["/pause"]', "--user", "65535:65535"),
    ),
    "busybox": SmallImage(_write_busybox, ("--env", "PATH=/bin", "--cmd", "sh")),
    "bash": SmallImage(_write_bash, ("--env", "PATH=/bin", "--cmd", "bash")),
    "static": SmallImage(lambda root: _write_program("act", root), ("--entrypoint", '["/act"]')),
    "user": SmallImage(
        _write_busybox, ("--env", "PATH=/bin", "--env", "HOME=/tmp", "--user", USER, "--cmd", "sh")
    ),
    "capable": SmallImage(_write_capable, ("--env", "PATH=/bin", "--cmd", "sh")),
    "tekton": SmallImage(_write_tekton, ("--entrypoint", '["/ko-app/entrypoint"]')),
}
