"""Where a node's runtime and kubelet have their files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class NodePaths:
    """The directories of one node."""

    configuration: Path
    """Of containerd. Its drop-ins are in a directory below."""
    data: Path
    """Of containerd: images, and the root filesystems of containers."""
    state: Path
    """Of containerd: sockets, and the mount points of root filesystems."""
    kubelet: Path
    pod_logs: Path
    logs: Path
    """What the runtime and the kubelet print."""


USUAL = NodePaths(
    configuration=Path("/etc/containerd"),
    data=Path("/var/lib/containerd"),
    state=Path("/run/containerd"),
    kubelet=Path("/var/lib/kubelet"),
    pod_logs=Path("/var/log/pods"),
    logs=Path("/var/log"),
)
SECOND = NodePaths(
    configuration=Path("/var/lib/second/configuration"),
    data=Path("/var/lib/second/containerd"),
    state=Path("/run/second"),
    kubelet=Path("/var/lib/second/kubelet"),
    pod_logs=Path("/var/log/second/pods"),
    logs=Path("/var/log/second"),
)
"""Of a second node in the same namespaces."""
SECOND_CGROUP = "second"
"""In each hierarchy. A kubelet removes the pods of others from its own cgroup."""
