"""The HTTP client under `kubernetes`' asyncio client, with connections made podsettle's way."""

from __future__ import annotations

import aiohttp

from webhook.aiohttp_resolver import ThreadResolver
from webhook.cluster.asyncio_client import RESTClientObject
from webhook.dns_resolver import Resolver

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
