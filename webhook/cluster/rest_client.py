"""The HTTP client under `kubernetes`' asyncio client, without the rest of that package.

Its `__init__` imports the synchronous client as well, and with it requests, urllib3, oauthlib and
websocket-client: 8 MiB in every replica and a quarter of a second of every start, for nothing that
is ever called. So it is not run: modules that only know where their submodules are stand in for
the packages, and submodules are found there as ever, also by whoever imports others of them later.
"""

# ruff: noqa: E402
from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec

import aiohttp

from webhook.aiohttp_resolver import ThreadResolver
from webhook.dns_resolver import Resolver


def _register_without_running(package: str) -> None:
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

_MAX_NAME_LOOKUPS = 4
"""Of one name. While they are stuck requests fail at once, and are tried again later."""


class RestClient(RESTClientObject):
    """One session, whose names are looked up in threads of its own."""

    def _create_connector(self) -> aiohttp.TCPConnector:
        """The hook that RESTClientObject documents for a resolver of one's own.

        The default one uses the event loop's executor: at exit, `asyncio.run` would wait there for
        a look-up that hangs.
        """
        resolver = Resolver(_MAX_NAME_LOOKUPS, _MAX_NAME_LOOKUPS)
        return aiohttp.TCPConnector(
            limit=self.maxsize,
            ssl=self.ssl_context,
            resolver=ThreadResolver(resolver, lambda: "the API server"),
            # aiohttp's cache would make every request wait for the first look-up, stuck or not.
            use_dns_cache=False,
        )
