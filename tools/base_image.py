"""The root file system of a base image: a Python of this machine, busybox as the shell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

BUSYBOX = "/bin/busybox"
APPLETS = ("sh", "mv", "env", "cat", "ls")
# Of the image's configuration: without it, no step finds python3.
PATH = "/opt/python/bin:/bin"
# The rest of glibc, and what compilers link: packages with C code may need these, and Python not.
COMMON_LIBRARIES = ("libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1", "libgcc_s.so.1")
NEVER_NEEDED = (
    "test",
    "idlelib",
    "tkinter",
    "turtledemo",
    "site-packages",
    "config-*",
    "__pycache__",
)


def write_root_fs(root: Path, python: Path) -> None:
    """Fill `root`: `python` with its standard library in /opt/python, and what these load."""
    prefix, name = _prefix(python)
    home = root / "opt/python"
    shutil.copytree(
        prefix / "lib" / name, home / "lib" / name, ignore=shutil.ignore_patterns(*NEVER_NEEDED)
    )
    (home / "bin").mkdir()
    shutil.copy2(prefix / "bin" / name, home / "bin/python3")
    _copy_wheels(python, root)
    # Its presence makes pip installable: a venv of this Python has a site-packages of its own.
    (home / "lib" / name / "site-packages").mkdir()
    (root / "bin").mkdir()
    shutil.copy2(BUSYBOX, root / "bin/busybox")
    for applet in APPLETS:
        (root / "bin" / applet).symlink_to("busybox")
    binaries = [home / "bin/python3", *home.rglob("*.so")]
    copy_libraries(binaries, root)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    (root / "etc").mkdir()
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\napp:x:1001:0::/tmp:/bin/sh\n")


def _copy_wheels(python: Path, root: Path) -> None:
    """Copy the wheels of ensurepip, if they are not in the standard library, as on Debian."""
    code = "import sysconfig; print(sysconfig.get_config_var('WHEEL_PKG_DIR') or '')"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    if directory := done.stdout.strip():
        shutil.copytree(directory, root / directory.lstrip("/"))


def copy_libraries(binaries: Iterable[Path], root: Path) -> None:
    """Copy what the dynamic linker loads for the binaries into `root`."""
    for library in _libraries(binaries):
        target = root / library.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(library, target)


def _prefix(python: Path) -> tuple[Path, str]:
    """Return the directory of a Python, and its name there, such as `python3.13`."""
    code = "import sys; print(sys.base_prefix); print('python%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    prefix, name = done.stdout.splitlines()
    return Path(prefix), name


def _libraries(binaries: Iterable[Path]) -> set[Path]:
    """Return what the dynamic linker loads for the binaries, as paths."""
    done = subprocess.run(
        ["ldd", *map(str, binaries)],
        capture_output=True,
        text=True,
        check=False,  # it is not 0 where one of them is static
        env={**os.environ, "LC_ALL": "C"},
    )
    loaded = {Path(path) for path in re.findall(r"(/\S+) \(0x", done.stdout)}
    libc = next(path for path in loaded if path.name == "libc.so.6")
    return loaded | {path for name in COMMON_LIBRARIES if (path := libc.with_name(name)).is_file()}
