"""A drop-in for the systemd unit of a container runtime that limits the open files of containers.

Containers inherit RLIMIT_NOFILE from the process that starts them (kubernetes issue 3595).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_LIMITS = re.compile(r"([1-9]\d{0,9}):([1-9]\d{0,9})", re.ASCII)
_MAX_OPEN_FILES = 2_147_483_584
"""The largest value of fs.nr_open (`sysctl_nr_open_max` in fs/file.c of Linux)."""

_CAVEATS = (
    # systemd applies drop-ins in the order of their names. `systemctl edit` writes override.conf,
    # and AKS set_ulimits.conf.
    "/etc/systemd/system/UNIT.d/zz-podsettle-open-files.conf, on each node:",
    "",
    "The limits are those of the runtime itself too, and of every container that it starts from "
    "then on. Commands of kubectl exec, of exec probes and of hooks get them too.",
    "Programs that raise their soft limit to the hard limit, such as those in Go since 1.19 and "
    "the JVM, can open as many files as the hard limit says.",
    "runc of Debian 12 (1.1.5) gives containers the hard limit as the soft one too.",
    "To apply it: systemctl daemon-reload && systemctl restart UNIT. Running containers keep their "
    "limits.",
)
_PRECEDENCE = {
    "containerd.service": (
        "Limits in a base runtime spec take precedence, such as those of EKS with Amazon Linux "
        "2023 and of Talos: --for prints these. Elsewhere, change RLIMIT_NOFILE in the file that "
        "this command prints (kubespray: containerd_base_runtime_spec_rlimit_nofile): containerd "
        "config dump | grep base_runtime_spec"
    ),
    # `getSpecGen` in server/container_create_linux.go.
    "crio.service": (
        "Limits of CRI-O's own configuration take precedence. If this command prints any, change "
        "default_ulimits there: crio status config | grep nofile="
    ),
}


def parse_limits(text: str) -> tuple[int, int]:
    """Return the soft and the hard limit in a text such as `65536:524288`.

    Raises ValueError for any other text.
    """
    match = _LIMITS.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not SOFT:HARD, two numbers such as 65536:524288")
    soft, hard = int(match[1]), int(match[2])
    if soft > hard:
        raise ValueError(f"the soft limit {soft} is above the hard limit {hard}")
    if hard > _MAX_OPEN_FILES:
        raise ValueError(f"the hard limit {hard} is above the kernel's, {_MAX_OPEN_FILES}")
    return soft, hard


def caveats(unit: str) -> Iterator[str]:
    """Yield the path of the drop-in for a unit such as `crio.service`, and what to know of it."""
    for paragraph in _CAVEATS:
        yield paragraph.replace("UNIT", unit)
    yield _PRECEDENCE[unit]


def unit_drop_in(soft: int, hard: int) -> str:
    """Return the drop-in for the unit of a runtime."""
    return f"[Service]\nLimitNOFILE={soft}:{hard}\n"
