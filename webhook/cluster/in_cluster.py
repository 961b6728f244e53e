"""Whether this process runs in a pod."""

from __future__ import annotations

import os
from pathlib import Path

_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def in_cluster() -> bool:
    """The kubelet sets the variable in every container (kubernetes `pkg/kubelet/envvars`)."""
    return "KUBERNETES_SERVICE_HOST" in os.environ


def own_namespace() -> str:
    """The namespace of this process's pod, which comes with its token. Raises OSError."""
    return _NAMESPACE.read_text().strip()
