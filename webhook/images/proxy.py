"""The HTTP proxy for requests to registries, from HTTPS_PROXY and NO_PROXY."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from yarl import URL

from webhook.images.keyring import Credential
from webhook.no_proxy import NoProxy, proxy_variable


@dataclass(frozen=True)
class Proxy:
    """An HTTP proxy, and the rules for hosts that bypass it."""

    url: URL
    """The proxy's URL without user name and password."""
    headers: Mapping[str, str]
    """The headers of the CONNECT request: the authorization if the proxy needs a password."""
    _no_proxy: NoProxy

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self | None:
        """Return the proxy for `https://` URLs, or None if there is none.

        Raises ValueError if HTTPS_PROXY is not the URL of an HTTP proxy. The message does not
        repeat the value, because that may contain a password.
        """
        value = proxy_variable(environment, "HTTPS_PROXY")
        if not value:
            return None
        message = "HTTPS_PROXY is not a URL such as http://proxy.example:3128"
        try:
            url = URL(value if "://" in value else f"http://{value}")
            user, password = url.user, url.password
            port = url.port
        except ValueError:
            raise ValueError(message) from None
        if url.scheme not in ("http", "https") or not url.host or not port:
            raise ValueError(message)
        headers = {}
        if user is not None:
            headers["Proxy-Authorization"] = Credential(user, password or "").authorization
        return cls(url.origin(), headers, NoProxy.from_environment(environment))

    def is_used_for(self, url: URL) -> bool:
        """Return whether requests to a URL go through the proxy. Loopback addresses never do."""
        return not self._no_proxy.applies_to(url.raw_host or "", url.port or 443)
