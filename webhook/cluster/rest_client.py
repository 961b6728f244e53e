"""The HTTP client of `kubernetes.aio`, imported without the rest of the `kubernetes` package.

The `__init__` of `kubernetes` also imports the synchronous client, with requests, urllib3, oauthlib
and websocket-client. podsettle does not use these packages. Their import takes 8 MiB of memory and
a quarter of a second at the start of each replica. This module therefore registers both packages in
`sys.modules` without running their `__init__`. Python still finds all their submodules, also in
later imports.
"""

# ruff: noqa: E402
from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec

import aiohttp

from webhook.aiohttp_resolver import ThreadResolver
from webhook.dns_resolver import Resolver


def _register_without_running(package: str) -> None:
    """Register a package in `sys.modules` without running its `__init__`."""
    if package in sys.modules or (spec := find_spec(package)) is None:
        return
    sys.modules[package] = module_from_spec(spec)
    parent, _, name = package.rpartition(".")
    if parent:
        setattr(sys.modules[parent], name, sys.modules[package])


_register_without_running("kubernetes")
_register_without_running("kubernetes.aio")

from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import load_incluster_config, load_kube_config

__all__ = ["Configuration", "RestClient", "load_incluster_config", "load_kube_config"]

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
