"""Functions that detect the pod in which podsettle runs.

This module is separate from `client`, so that the command line can use it without importing the API
client.
"""

from __future__ import annotations

import os
from pathlib import Path

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The directory in which the kubelet mounts the token, the namespace and the CA certificates."""


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
    return (SERVICE_ACCOUNT / "namespace").read_text().strip()
