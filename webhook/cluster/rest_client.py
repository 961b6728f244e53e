"""The HTTP client of `kubernetes.aio`, with podsettle's resolver of host names."""

from __future__ import annotations

import re
import ssl
from contextlib import suppress

import aiohttp
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from yarl import URL

from webhook.client_tls_context import verify_as_kubectl
from webhook.dns_resolver import ThreadResolver
from webhook.kubeconfig.access import Access
from webhook.kubeconfig.credentials import basic
from webhook.tls.load_pem import load_pem

_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


class RestClient(RESTClientObject):
    """An HTTP session that resolves host names in its own threads."""

    def __init__(self, access: Access, ca: bytes, certificate: bytes, key: bytes) -> None:
        """Create a client. Raises ssl.SSLError for a certificate or key that is not valid.

        `ca` has the CA certificates in PEM. It is empty for those of the system.
        """
        proxy = URL(access.proxy)
        configuration = Configuration(
            host=access.url,
            # The comments of a bundle can have other characters, which Python refuses.
            ca_cert_data=_valid_certificates(ca.decode("ascii", "ignore")),
            verify_ssl=access.verify,
            tls_server_name=access.server_name,
            proxy=str(proxy.with_user(None)) if proxy.user is not None else access.proxy,
        )
        if proxy.user is not None:
            # aiohttp would encode them in Latin-1. It sends this header to the proxy alone, as
            # Proxy-Authorization.
            authorization = basic(proxy.user, proxy.password or "")
            configuration.proxy_headers = {"Authorization": authorization}
        # aiohttp would take credentials from a netrc file, and proxies without their exceptions.
        configuration.client_session_kwargs = {"trust_env": False}
        super().__init__(configuration)
        verify_as_kubectl(self.ssl_context)
        if certificate:
            load_pem(self.ssl_context, certificate, key)

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


def _valid_certificates(bundle: str) -> str:
    """Return a bundle without certificates that cannot be parsed, which client-go skips too.

    Python would refuse the whole bundle. One without any valid certificate is returned as it is.
    """
    valid, context = [], ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for block in _CERTIFICATE.findall(bundle):
        with suppress(ssl.SSLError):
            context.load_verify_locations(cadata=block)
            valid.append(block)
    return "\n".join(valid) or bundle
