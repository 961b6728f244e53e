"""Access to the cluster in which this process runs, by its pod's service account."""

from __future__ import annotations

from pathlib import Path

from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config

from webhook.cluster.errors import NoClusterError
from webhook.cluster.own_pod import own_namespace
from webhook.kubeconfig.access import Access
from webhook.kubeconfig.credentials import Credential, CredentialsError, FileOrData


def from_service_account() -> Access:
    """Return the access of this pod's service account. Raises NoClusterError.

    It uses no proxy. HTTPS_PROXY is for registries, and a company's proxy cannot reach the address
    of a Service.
    """
    configuration = Configuration()
    try:
        load_incluster_config(configuration)
        ca = FileOrData(Path(str(configuration.ssl_ca_cert)))
        token = _ServiceAccountToken(configuration)
        return Access(configuration.host, ca=ca, credentials=token, namespace=own_namespace())
    except Exception as error:
        raise NoClusterError(f"no cluster found: {error}") from None


class _ServiceAccountToken:
    """The token of a service account, which `kubernetes.aio` reads again every minute."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    async def current(self) -> Credential:
        """Return the token. Raises CredentialsError."""
        try:
            settings = await self._configuration.auth_settings()
        except (OSError, ConfigException) as error:
            raise CredentialsError(f"the token of the service account: {error}") from None
        return Credential(str(settings["BearerToken"]["value"]))

    async def renew(self, rejected: Credential) -> bool:
        """Return whether the token was read again since."""
        return await self.current() != rejected
