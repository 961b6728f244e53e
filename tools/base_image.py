"""The root file system of a base image: a Python of this machine, busybox as the shell."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

BUSYBOX = "/bin/busybox"
# Of the image's configuration: without it, no step finds python3.
PATH = "/opt/python/bin:/bin"
# The rest of glibc, and what compilers link: packages with C code may need these, and Python not.
_COMMON_LIBRARIES = ("libpthread.so.0", "libdl.so.2", "librt.so.1", "libutil.so.1", "libgcc_s.so.1")
_NEVER_NEEDED = shutil.ignore_patterns(
    *("test", "idlelib", "tkinter", "turtledemo", "site-packages", "config-*", "__pycache__")
)
_FACTS = """
import sys, sysconfig
print(sys.base_prefix)
print('python%d.%d' % sys.version_info[:2])
print(sysconfig.get_config_var('WHEEL_PKG_DIR') or '')
"""


def write_root_fs(root: Path, python: Path) -> None:
    """Fill `root`: `python` with its standard library in /opt/python, and what these load."""
    done = subprocess.run([python, "-c", _FACTS], capture_output=True, text=True, check=True)
    prefix, name, wheels = done.stdout.split("\n")[:3]
    home, library = root / "opt/python", root / "opt/python/lib" / name
    shutil.copytree(Path(prefix) / "lib" / name, library, ignore=_NEVER_NEEDED)
    (home / "bin").mkdir()
    shutil.copy2(Path(prefix) / "bin" / name, home / "bin/python3")
    # The wheels of ensurepip, if they are not in the standard library, as on Debian.
    if wheels:
        shutil.copytree(wheels, root / wheels.lstrip("/"))
    # Its presence makes pip installable: a venv of this Python has a site-packages of its own.
    (library / "site-packages").mkdir()
    (root / "bin").mkdir()
    shutil.copy2(BUSYBOX, root / "bin/busybox")
    for applet in ("sh", "mv", "env", "cat", "ls"):
        (root / "bin" / applet).symlink_to("busybox")
    copy_libraries([home / "bin/python3", *home.rglob("*.so")], root)
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    (root / "etc").mkdir()
    (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\napp:x:1001:0::/tmp:/bin/sh\n")


def copy_libraries(binaries: Iterable[Path], root: Path) -> None:
    """Copy what the dynamic linker loads for the binaries into `root`."""
    done = subprocess.run(
        ["ldd", *map(str, binaries)],
        capture_output=True,
        text=True,
        check=False,  # it is not 0 where one of them is static
        env={**os.environ, "LC_ALL": "C"},
    )
    loaded = {Path(path) for path in re.findall(r"(/\S+) \(0x", done.stdout)}
    libc = next(path for path in loaded if path.name == "libc.so.6")
    common = {path for name in _COMMON_LIBRARIES if (path := libc.with_name(name)).is_file()}
    for library in loaded | common:
        target = root / library.relative_to("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(library, target)
