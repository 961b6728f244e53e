"""The images of the real node, as files of a registry: `python -m tests.support.node.images`.

The webhook's and the helper's image are built by buildah from the project's Dockerfile, as an
administrator builds them. The base image has a Python of this machine, so that no other registry is
needed; `--base` names another one. The other images are those that the tests' pods run.

The result is kept in `${XDG_CACHE_HOME:-~/.cache}/podsettle/images`. Its name is a hash of all
files that go into the images.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.node.image_files import BASH, IMAGES
from tests.support.node.registry_server import ADDRESS, PROGRAM, serve
from tests.support.paths import ROOT
from tests.support.process import free_port
from tests.support.wheels import downloaded_wheels
from tools.base_image import BUSYBOX, PATH, write_root_fs
from tools.build import BuildError
from tools.buildah import Buildah, BuildahError
from tools.pythons import dockerfile_python

IMAGES_VARIABLE = "PODSETTLE_NODE_IMAGES"
"""A directory that this module printed. A process without network cannot build the images."""
TARGETS = ("podsettle", "linger")
"""Of the Dockerfile."""

# What the Dockerfile copies.
_CONTEXT = ("Dockerfile", "pyproject.toml", "README.md", "LICENSE", "THIRD_PARTY_NOTICES")
_CONTEXT_DIRECTORIES = ("requirements", "webhook")
# The Debian package of each program.
_PROGRAMS = {
    "buildah": "buildah",
    BUSYBOX: "busybox-static",
    BASH: "bash",
    "ldd": "libc-bin",
    PROGRAM: "docker-registry",
}
_LOCAL_BASE = "localhost/python"
_UNFINISHED = "unfinished-"
_KEPT_BUILDS = 8


class ImageBuildError(Exception):
    """The images cannot be built; the message says what to do."""


@dataclass(frozen=True)
class NodeImages:
    """The names under which the node pulls the images."""

    tag: str
    registry: str = ADDRESS

    @classmethod
    def of(cls, data: Path) -> NodeImages:
        """Return the names of the images in a directory that `built` returned."""
        return cls(data.name)

    def repository(self, image: str) -> str:
        """Return a name without the tag, as the chart's `image.repository` has it."""
        return f"{self.registry}/{image}"

    def named(self, image: str) -> str:
        """Return the name of an image with its tag."""
        return f"{self.repository(image)}:{self.tag}"

    @property
    def podsettle(self) -> str:
        """The webhook's image."""
        return self.named("podsettle")

    @property
    def linger(self) -> str:
        """The helper's image."""
        return self.named("linger")

    @property
    def pause(self) -> str:
        """The image of a pod's sandbox."""
        return self.named("pause")

    @property
    def busybox(self) -> str:
        """BusyBox with all applets. Its shell is ash."""
        return self.named("busybox")

    @property
    def bash(self) -> str:
        """BusyBox' applets. Its shell is bash."""
        return self.named("bash")

    @property
    def static(self) -> str:
        """The program `/act` (see static/act.c), and no shell."""
        return self.named("static")

    @property
    def user(self) -> str:
        """BusyBox. Its user is a name in its /etc/passwd."""
        return self.named("user")

    @property
    def capable(self) -> str:
        """BusyBox, and a program with a file capability (see image_files.py)."""
        return self.named("capable")

    @property
    def tekton(self) -> str:
        """Tekton's own entrypoint, and no shell."""
        return self.named("tekton")


def missing_packages() -> list[str]:
    """Return the Debian packages without which the images cannot be built."""
    return [package for name, package in _PROGRAMS.items() if shutil.which(name) is None]


def directory() -> Path:
    """Return the directory that $PODSETTLE_NODE_IMAGES names, or build the images."""
    named = os.environ.get(IMAGES_VARIABLE)
    return Path(named) if named else built()


def built(announce: Callable[[str], None] = print, base: str = "") -> Path:
    """Return a directory for `serve`. Build the images first if they are not in the cache.

    `base` names a base image for the Dockerfile. Without it, a Python of this machine is the base.
    """
    if missing := missing_packages():
        raise ImageBuildError(f"images: not installed: apt install {' '.join(missing)}")
    if os.geteuid() != 0:
        raise ImageBuildError("images: buildah's chroot isolation needs root")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "podsettle/images"
    cache.mkdir(parents=True, exist_ok=True)
    with _lock(cache / "lock", announce):
        # Killed builds left them. A program that outlived its build may still write to one.
        for left in cache.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(left, ignore_errors=True)
        scratch = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=cache))
        try:
            return _built(cache, scratch, base, announce)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _built(cache: Path, scratch: Path, base: str, announce: Callable[[str], None]) -> Path:
    inputs = scratch / "inputs"
    for name in (*IMAGES, "context", "base"):
        (inputs / name).mkdir(parents=True)
    for name, image in IMAGES.items():
        image.fill(inputs / name)
    _copy_context(inputs / "context")
    python = dockerfile_python() or Path(sys.executable)
    if base:
        # It is kept, because its identity is a part of the key.
        buildah = Buildah(cache / "storage", dict(os.environ))
        buildah("rm", "--all")  # a killed build left them
        announce(f"pulling {base} ...")
        identity = buildah("pull", "--quiet", "--policy", "always", base)
    else:
        buildah = Buildah(scratch / "storage")
        write_root_fs(inputs / "base", python)
        identity = _LOCAL_BASE
    recipe = [(name, image.configuration) for name, image in IMAGES.items()]
    key = hashlib.sha256(repr((identity, recipe, _tree_hash(inputs))).encode()).hexdigest()[:16]
    data = cache / key
    if not data.is_dir():
        start = time.monotonic()
        announce("building the images: some minutes, once for each state of the sources")
        if base:
            options = _secrets()
        else:
            buildah.image_of_files(_LOCAL_BASE, inputs / "base", "--env", f"PATH={PATH}")
            options = local_packages(scratch, python)
        for target in TARGETS:
            announce(f"building {target} ...")
            _build(buildah, target, identity, inputs / "context", *options)
        for name, image in IMAGES.items():
            buildah.image_of_files(_local_name(name), inputs / name, *image.configuration)
        _push(buildah, scratch, key, announce)
        (scratch / "data").rename(data)
        announce(f"built the images in {time.monotonic() - start:.0f} s")
        _remove_old(cache)
    os.utime(data)
    return data


def _copy_context(target: Path) -> None:
    for name in _CONTEXT:
        shutil.copy2(ROOT / name, target / name)

    def ignored(parent: str, names: list[str]) -> list[str]:
        built = ["bin"] if Path(parent) == ROOT / "webhook/linger" else []
        return [name for name in names if name == "__pycache__" or name in built]

    for name in _CONTEXT_DIRECTORIES:
        shutil.copytree(ROOT / name, target / name, ignore=ignored)


def _tree_hash(root: Path) -> str:
    """Return a hash of names, kinds, executable bits and contents."""
    found = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.is_symlink():
            content = str(path.readlink()).encode()
        else:
            content = path.read_bytes() if path.is_file() else b""
        kind = (path.is_symlink(), path.is_dir(), os.access(path, os.X_OK))
        name = str(path.relative_to(root))
        found.update(repr((name, kind, hashlib.sha256(content).digest())).encode())
    return found.hexdigest()


def local_packages(scratch: Path, python: Path) -> list[str]:
    """Return the options of a build that needs no network: packages come from a directory."""
    wheels = downloaded_wheels(python, ("run", "build", "linger"))
    configuration = scratch / "pip.conf"
    configuration.write_text("[global]\nno-index = true\nfind-links = /wheels\n")
    return [f"--secret=id=pip.conf,src={configuration}", f"--volume={wheels}:/wheels:ro"]


def _secrets() -> list[str]:
    """Return the options for a build that downloads its packages as pip does on this machine."""
    found = {"pip.conf": os.environ.get("PIP_CONFIG_FILE"), "ca.crt": os.environ.get("PIP_CERT")}
    return [f"--secret=id={name},src={path}" for name, path in found.items() if path]


def _build(buildah: Buildah, target: str, base: str, context: Path, *options: str) -> None:
    names = ("--target", target, "--tag", _local_name(target), "--build-arg", f"PYTHON={base}")
    flags = ("--isolation=chroot", "--pull-never", "--no-cache")
    buildah("build", *flags, *names, *options, context)


def _local_name(image: str) -> str:
    return f"localhost/node/{image}"


def _push(buildah: Buildah, scratch: Path, tag: str, announce: Callable[[str], None]) -> None:
    """Fill the directory `data` of a registry."""
    announce("pushing the images ...")
    (scratch / "data").mkdir()
    address = f"127.0.0.1:{free_port()}"
    with serve(scratch / "data", scratch / "registry.log", address, writable=True):
        for image in (*TARGETS, *IMAGES):
            target = f"docker://{address}/{image}:{tag}"
            buildah("push", "--tls-verify=false", _local_name(image), target)
            buildah("rmi", _local_name(image))


def _remove_old(cache: Path) -> None:
    """Remove all builds but the latest, except those that a registry serves."""
    builds = [path for path in cache.iterdir() if (path / "docker").is_dir()]
    builds.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    for path in builds[_KEPT_BUILDS:]:
        held = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path)
        except BlockingIOError:
            continue
        finally:
            os.close(held)


@contextmanager
def _lock(path: Path, announce: Callable[[str], None]) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            announce("another process builds images: waiting for it ...")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the images that are not in the cache, and print the directory."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.node.images", description=main.__doc__
    )
    parser.add_argument("--base", default="", help="base image with Python 3.11 or later")
    options = parser.parse_args(arguments)

    def announce(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    try:
        print(built(announce, options.base))
    except (ImageBuildError, BuildError, BuildahError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
