"""The proxy of the environment for an API server, chosen as kubectl chooses it."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from webhook.no_proxy import NoProxy, proxy_variable

_PORTS = {"http": 80, "https": 443}


def environment_proxy(url: str) -> str:
    """Return the URL of the proxy for requests to a URL, or an empty text for none.

    A proxy without a scheme is one with http. Raises ValueError for texts that are no URLs.
    """
    target = urlsplit(url)
    value = proxy_variable(os.environ, f"{target.scheme.upper()}_PROXY")
    port = target.port or _PORTS[target.scheme]
    if not value or NoProxy.from_environment(os.environ).applies_to(target.hostname or "", port):
        return ""
    return value if "://" in value else f"http://{value}"
