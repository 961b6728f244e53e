"""What `podsettle node-config` prints, and what it refuses."""

from __future__ import annotations

import tomllib
from typing import Any

from tests.support.process import podsettle

CRIO = ("crio", "--selinux")


CONTAINERD = ("containerd", "--volatile", "--node-selector", "pool=volatile")


def printed(*arguments: str) -> str:
    found = podsettle("node-config", *arguments)
    assert found.returncode == 0, found.stderr
    return found.stdout


def toml(*arguments: str) -> dict[str, Any]:
    return tomllib.loads(printed(*arguments, "-o", "dropin"))


def refused(*arguments: str) -> str:
    found = podsettle("node-config", *arguments)
    assert found.returncode == 2
    assert not found.stdout
    return found.stderr
