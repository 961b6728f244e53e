"""The nodes of a run: for each runtime a real node whose runtime has the provoked handlers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from race.errors import RaceError
from race.provocation import (
    Provoked,
    build_for_containerd,
    build_for_crio,
    containerd_drop_in,
    crio_drop_in,
)
from tests.support.node.containerd import Containerd
from tests.support.node.crio import Crio
from tests.support.node.images import NodeImages
from tests.support.node.node import RealNode
from tools.crio import find_commit, find_crio

_RUNTIME_ROOT = Path("/run/runc")
_DROP_IN = "90-race"


@dataclass(frozen=True, slots=True)
class CrioSubject:
    """A release of CRI-O: a tag, branch or commit that `make crio` built."""

    revision: str

    def __str__(self) -> str:
        return f"CRI-O {self.revision}"

    def commit(self) -> str:
        """Return the commit that the revision names."""
        return find_commit(self.revision) or ""

    @contextmanager
    def start(
        self, directory: Path, images: NodeImages
    ) -> Iterator[tuple[RealNode, list[Provoked]]]:
        """Start a node. The provocations are compiled into the directory."""
        build = find_crio(self.revision)
        if build is None:
            raise RaceError(f"{self} is not built: python -m tools.crio {self.revision}")
        provoked = build_for_crio(_program("runc"), directory)
        runtime = Crio(build, images.pause)
        drop_in = crio_drop_in(provoked, _RUNTIME_ROOT, _program("conmon"))
        runtime.add_drop_in(f"{_DROP_IN}.conf", drop_in)
        with RealNode.start(runtime) as node:
            yield node, provoked


@dataclass(frozen=True, slots=True)
class ContainerdSubject:
    """A release line of containerd."""

    line: str

    def __str__(self) -> str:
        return f"containerd {self.line}"

    def commit(self) -> str:
        """Return the empty string: containerd is built from a released module."""
        return ""

    @contextmanager
    def start(
        self, directory: Path, images: NodeImages
    ) -> Iterator[tuple[RealNode, list[Provoked]]]:
        """Start a node. The provocations are compiled into the directory."""
        provoked = build_for_containerd(_program("runc"), directory)
        runtime = Containerd(self.line, images.pause)
        major = int(self.line.partition(".")[0])
        runtime.add_drop_in(f"{_DROP_IN}.toml", containerd_drop_in(provoked, major))
        with RealNode.start(runtime) as node:
            yield node, provoked


Subject = CrioSubject | ContainerdSubject


def _program(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise RaceError(f"{name} is not installed: apt install {name}")
    return Path(found)
