"""The HTTP client of `kubernetes.aio`, with podsettle's resolver of host names."""

from __future__ import annotations

import aiohttp
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import (
    ConfigException,
    list_kube_config_contexts,
    load_incluster_config,
    load_kube_config,
)

from webhook.aiohttp_resolver import ThreadResolver
from webhook.dns_resolver import Resolver

__all__ = [
    "ConfigException",
    "Configuration",
    "RestClient",
    "list_kube_config_contexts",
    "load_incluster_config",
    "load_kube_config",
]

# The maximum number of DNS look-ups in flight. While all of them hang, requests fail
# immediately, and their callers retry.
_MAX_NAME_LOOKUPS = 4


class RestClient(RESTClientObject):
    """An HTTP session that resolves host names in its own threads."""

    def _create_connector(self) -> aiohttp.TCPConnector:
        """Return a connector with podsettle's resolver. RESTClientObject documents this hook.

        The default resolver uses the event loop's executor. `asyncio.run` waits for that executor
        at exit, so a lookup that hangs would delay the exit.
        """
        resolver = Resolver(_MAX_NAME_LOOKUPS, _MAX_NAME_LOOKUPS)
        return aiohttp.TCPConnector(
            limit=self.maxsize,
            ssl=self.ssl_context,
            resolver=ThreadResolver(resolver, lambda: "the API server"),
            # With aiohttp's DNS cache, all requests would wait for the first look-up if it hangs.
            use_dns_cache=False,
        )
