"""The HTTP client of `kubernetes.aio`, with podsettle's resolver of host names."""

from __future__ import annotations

import ssl
from typing import NamedTuple

import aiohttp
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from webhook.dns_resolver import ThreadResolver
from webhook.kubeconfig.access import Access
from webhook.tls.load_pem import load_pem


class TlsIdentity(NamedTuple):
    """What the TLS context of a client is made of. Another one needs another client."""

    ca: bytes
    """The CA certificates in PEM. Empty for those of the system."""
    certificate: bytes
    key: bytes


class RestClient(RESTClientObject):
    """An HTTP session that resolves host names in its own threads."""

    def __init__(self, access: Access, identity: TlsIdentity) -> None:
        """Create a client. Raises ssl.SSLError for a certificate or key that is not valid."""
        configuration = Configuration(
            host=access.url,
            # The comments of a bundle can have other characters, which Python refuses.
            ca_cert_data=identity.ca.decode("ascii", "ignore"),
            verify_ssl=access.verify,
            tls_server_name=access.server_name,
            proxy=access.proxy,
        )
        # kubectl accepts CAs that VERIFY_X509_STRICT rejects; see `webhook.client_tls_context`.
        configuration.disable_strict_ssl_verification = True
        # aiohttp would take credentials from a netrc file, and proxies without their exceptions.
        configuration.client_session_kwargs = {"trust_env": False}
        super().__init__(configuration)
        # kubectl trusts each certificate of the bundle, also one that another CA issued. Python
        # does so since 3.13.
        self.ssl_context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if identity.certificate:
            load_pem(self.ssl_context, identity.certificate, identity.key)

    def _create_connector(self) -> aiohttp.TCPConnector:
        """Return a connector with podsettle's resolver. RESTClientObject documents this hook.

        The default resolver uses the event loop's executor. `asyncio.run` waits for that executor
        at exit, so a lookup that hangs would delay the exit.
        """
        return aiohttp.TCPConnector(
            limit=self.maxsize,
            ssl=self.ssl_context,
            resolver=ThreadResolver(),
            # With aiohttp's DNS cache, all requests would wait for the first look-up if it hangs.
            use_dns_cache=False,
        )
