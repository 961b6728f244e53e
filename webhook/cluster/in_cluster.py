"""Whether this process runs in a pod."""

from __future__ import annotations

import os


def in_cluster() -> bool:
    """The kubelet sets the variable in every container (kubernetes `pkg/kubelet/envvars`)."""
    return "KUBERNETES_SERVICE_HOST" in os.environ
