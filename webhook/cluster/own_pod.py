"""The detection of the pod in which podsettle runs.

This module is separate from `client`, so that the command line can use it without importing the API
client.
"""

from __future__ import annotations

import os


def in_cluster() -> bool:
    """Return whether this process runs in a pod.

    The kubelet sets KUBERNETES_SERVICE_HOST in every container (kubernetes `pkg/kubelet/envvars`).
    """
    return "KUBERNETES_SERVICE_HOST" in os.environ
