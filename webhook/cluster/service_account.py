"""Access to the cluster in which this process runs, by its pod's service account."""

from __future__ import annotations

import os

from webhook.cluster.errors import NoClusterError
from webhook.cluster.own_pod import SERVICE_ACCOUNT, own_namespace
from webhook.kubeconfig.access import Access
from webhook.kubeconfig.credentials import CredentialsError, FileOrData, StoredCredentials


def from_service_account() -> Access:
    """Return the access of this pod's service account. Raises NoClusterError.

    It uses no proxy. HTTPS_PROXY is for registries, and a company's proxy cannot reach the address
    of a Service.
    """
    try:
        host, port = (os.environ[f"KUBERNETES_SERVICE_{each}"] for each in ("HOST", "PORT"))
        return Access(
            f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
            ca=FileOrData(SERVICE_ACCOUNT / "ca.crt"),
            credentials=StoredCredentials("service account", token_file=SERVICE_ACCOUNT / "token"),
            namespace=own_namespace(),
        )
    except (KeyError, OSError, CredentialsError) as error:
        raise NoClusterError(f"no cluster found: {error}") from None
