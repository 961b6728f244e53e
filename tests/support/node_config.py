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


def selinux_drop_in(default_handler: str, *options: str) -> str:
    """Return the drop-in of CRI-O for nodes whose default handler has these settings.

    Without `--mode`, it is a handler. The settings are text as `handler_settings` gives it.
    """
    mode = () if "--mode" in options else ("--mode", "handler")
    if "workload" in options:
        return printed(*CRIO, *options, "-o", "dropin")
    found = podsettle(
        "node-config", *CRIO, *mode, *options, "--crio-config", "-", "-o", "dropin",
        stdin=f"[crio.runtime]\n{default_handler}",
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    return found.stdout


def toml(*arguments: str) -> dict[str, Any]:
    return tomllib.loads(printed(*arguments, "-o", "dropin"))


def refused(*arguments: str) -> str:
    found = podsettle("node-config", *arguments)
    assert found.returncode == 2
    assert not found.stdout
    return found.stderr
