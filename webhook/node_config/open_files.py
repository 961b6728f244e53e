"""Drop-ins that limit the open files of containers.

Containers inherit RLIMIT_NOFILE from the process that starts them (kubernetes issue 3595), so that
of containerd is for its systemd unit. CRI-O has a setting, which takes precedence over its unit.
"""

from __future__ import annotations

import re

from webhook.node_config.toml import toml_table

_LIMITS = re.compile(r"([1-9]\d{0,9}):([1-9]\d{0,9})", re.ASCII)
_MAX_OPEN_FILES = 2_147_483_584
"""The largest value of fs.nr_open (`sysctl_nr_open_max` in fs/file.c of Linux)."""

# CRI-O takes the last list, in the order of names. Operators name files `custom`, for example.
CRIO_DROP_IN = "/etc/crio/crio.conf.d/zz-podsettle-open-files.conf"

_PROGRAMS = (
    "Commands of kubectl exec, of exec probes and of hooks get the limits too.",
    "Programs that raise their soft limit to the hard limit, such as those in Go since 1.19 and "
    "the JVM, can open as many files as the hard limit says.",
)
CONTAINERD_CAVEATS = (
    # systemd applies drop-ins in the order of their names. `systemctl edit` writes override.conf,
    # and AKS set_ulimits.conf.
    "/etc/systemd/system/containerd.service.d/zz-podsettle-open-files.conf, on each node:",
    "",
    "The limits are those of containerd itself too, and of every container that it starts from "
    "then on.",
    *_PROGRAMS,
    "runc of Debian 12 (1.1.5) gives containers the hard limit as the soft one too.",
    "To apply it: systemctl daemon-reload && systemctl restart containerd.service. Running "
    "containers keep their limits.",
    "Limits in a base runtime spec take precedence, such as those of EKS with Amazon Linux 2023 "
    "and of Talos: --for prints these. Elsewhere, change RLIMIT_NOFILE in the file that this "
    "command prints (kubespray: containerd_base_runtime_spec_rlimit_nofile): containerd config "
    "dump | grep base_runtime_spec",
)
# OpenShift 4.20 sets nofile=1048576 in 00-default and in 01-ctrcfg-defaultUlimits, which clusters
# keep when they are upgraded (machine-config-operator PRs 5308 and 5516). LimitNOFILE of
# crio.service has no effect there (`getSpecGen` in server/container_create_linux.go).
CRIO_CAVEATS = (
    f"{CRIO_DROP_IN}, on each node that is not OpenShift's. For OpenShift: -o machineconfig",
    "",
    "The limits are those of every container that CRI-O starts from then on.",
    *_PROGRAMS,
    "The list replaces that of other files. Add its other entries, such as memlock: crio status "
    "config | grep default_ulimits",
    "To apply it: systemctl restart crio. Running containers keep their limits.",
)


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


def containerd_drop_in(soft: int, hard: int) -> str:
    """Return the drop-in for containerd's systemd unit."""
    return f"[Service]\nLimitNOFILE={soft}:{hard}\n"


def crio_drop_in(soft: int, hard: int) -> str:
    """Return the drop-in for CRI-O's configuration."""
    return toml_table("crio.runtime", {"default_ulimits": [f"nofile={soft}:{hard}"]})
