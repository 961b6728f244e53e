"""What containerd logs about containers that it could not delete in time."""

from __future__ import annotations

import re

# The shim has not deleted the container within 10 s. From containerd 2.3 on, a retry ends before
# the deletion: it reads the state first, for which a shim in an umount takes longer than 2 s.
_FAILURE = re.compile("failed to (stop|load task for) container: .*context deadline exceeded")


def count_failures(log: str, container_id: str) -> int:
    """Return how many of containerd's attempts to delete a container took too long."""
    lines = log.splitlines()
    return sum(container_id in line and bool(_FAILURE.search(line)) for line in lines)
