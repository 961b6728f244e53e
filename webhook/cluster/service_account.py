"""Access to the cluster in which this process runs, by its pod's service account."""

from __future__ import annotations

from pathlib import Path

from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config

from webhook.cluster.errors import NoClusterError
from webhook.cluster.own_pod import SERVICE_ACCOUNT
from webhook.kubeconfig.access import Access, Impersonation
from webhook.kubeconfig.credentials import AccessError, FileOrData, StoredCredentials


def from_service_account(impersonation: Impersonation) -> Access:
    """Return the access of this pod's service account. Raises NoClusterError.

    kubectl ignores the service account if it is given --as, and fails.

    It uses no proxy. HTTPS_PROXY is for registries, and a company's proxy cannot reach the address
    of a Service.
    """
    configuration = Configuration()
    try:
        load_incluster_config(configuration)
        return Access(
            configuration.host,
            ca=FileOrData(Path(str(configuration.ssl_ca_cert))),
            # Unlike the token of the configuration, it stays in use if its file cannot be read.
            credentials=StoredCredentials("service account", token_file=SERVICE_ACCOUNT / "token"),
            headers=impersonation.headers(),
        )
    except (ConfigException, OSError, ValueError, AccessError) as error:
        raise NoClusterError(f"no cluster found: {error}") from None
