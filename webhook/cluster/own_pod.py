"""The detection of the pod in which podsettle runs.

This module is separate from `client`, so that the command line can use it without importing the API
client.
"""

from __future__ import annotations

import os
from pathlib import Path

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet mounts the token, the namespace and the CA certificates."""


def in_cluster() -> bool:
    """Return whether this process runs in a pod.

    The kubelet sets KUBERNETES_SERVICE_HOST in every container (kubernetes `pkg/kubelet/envvars`).
    """
    return "KUBERNETES_SERVICE_HOST" in os.environ


def default_namespace() -> str:
    """Return the namespace that kubectl uses where a kubeconfig's context has none.

    In a pod with a service account it is POD_NAMESPACE, or the pod's own, also if the kubeconfig is
    that of another cluster (client-go `tools/clientcmd/client_config.go`, `inClusterClientConfig`).
    """
    if not in_cluster() or not (SERVICE_ACCOUNT / "token").is_file():
        return "default"
    try:
        mounted = (SERVICE_ACCOUNT / "namespace").read_text()
    except (OSError, ValueError):
        mounted = ""
    return os.environ.get("POD_NAMESPACE") or mounted.strip() or "default"
