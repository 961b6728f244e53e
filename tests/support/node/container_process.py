"""The process of a container, as the node sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def container_process(pod: dict[str, Any], container: str) -> int:
    """Return the process ID of a running container's first process."""
    (status,) = (each for each in pod["status"]["containerStatuses"] if each["name"] == container)
    identity = status["containerID"].partition("://")[2]
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and _is_first_process_in(path, identity):
            return int(path.name)
    raise AssertionError(f"container {container} ({identity}) has no process")


def _is_first_process_in(process: Path, cgroup: str) -> bool:
    try:
        groups = (process / "cgroup").read_text()
        lines = (process / "status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return False
    (namespace_ids,) = (line.split()[1:] for line in lines if line.startswith("NSpid:"))
    return cgroup in groups and namespace_ids[-1] == "1"
