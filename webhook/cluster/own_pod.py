"""Functions that detect the pod in which podsettle runs.

This module is separate from `client`, so that the command line can use it without importing the API
client.
"""

from __future__ import annotations

import os
from pathlib import Path

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def in_cluster() -> bool:
    """Return whether this process runs in a pod.

    The kubelet sets KUBERNETES_SERVICE_HOST in every container (kubernetes `pkg/kubelet/envvars`).
    """
    return "KUBERNETES_SERVICE_HOST" in os.environ


def own_namespace() -> str:
    """Return the namespace of this process's pod.

    The kubelet mounts a file with the name next to the service account token. Raises OSError if the
    file is missing.
    """
    return _NAMESPACE_FILE.read_text().strip()
