"""The HTTP proxy for requests to registries, from HTTPS_PROXY and NO_PROXY.

Both are parsed as golang.org/x/net/http/httpproxy parses them, because the container runtimes on
the nodes get the same values and use this Go package. Unlike `urllib`, the package accepts CIDRs
and ports in NO_PROXY, and spaces after its commas.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Self

from yarl import URL


@dataclass(frozen=True)
class _NoProxyRule:
    """One entry of NO_PROXY, which names hosts that podsettle connects to directly."""

    network: IPv4Network | IPv6Network | None = None
    domain: str = ""
    """The domain with a dot in front, or an empty text if the entry is an address or a network."""
    subdomains_only: bool = False
    """Whether the rule matches only names below the domain, not the domain itself."""
    port: int | None = None

    def matches(self, host: str, address: IPv4Address | IPv6Address | None, port: int) -> bool:
        """Return whether a host matches. `address` is the host's address if it is not a name."""
        if self.port is not None and self.port != port:
            return False
        if address is not None:
            return self.network is not None and address in self.network
        if not self.domain:
            return False
        return host.endswith(self.domain) or (
            not self.subdomains_only and host == self.domain.removeprefix(".")
        )


@dataclass(frozen=True)
class Proxy:
    """An HTTP proxy, and the rules for hosts that bypass it."""

    url: URL
    """The proxy's URL without user name and password."""
    headers: Mapping[str, str]
    """The headers of the CONNECT request: the authorization if the proxy needs a password."""
    _bypass_all: bool
    _no_proxy: tuple[_NoProxyRule, ...]

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self | None:
        """Return the proxy for `https://` URLs, or None if there is none.

        Raises ValueError if HTTPS_PROXY is not the URL of an HTTP proxy. The message does not
        repeat the value, because that may contain a password.
        """
        value = _variable(environment, "HTTPS_PROXY")
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
            credentials = b64encode(f"{user}:{password or ''}".encode()).decode()
            headers["Proxy-Authorization"] = f"Basic {credentials}"
        entries = [entry.strip().lower() for entry in _variable(environment, "NO_PROXY").split(",")]
        rules = (_parse_rule(entry) for entry in entries if entry)
        return cls(url.origin(), headers, "*" in entries, tuple(rule for rule in rules if rule))

    def is_used_for(self, url: URL) -> bool:
        """Return whether requests to a URL go through the proxy. Loopback addresses never do."""
        host = (url.raw_host or "").lower().removesuffix(".")
        address = _parse_address(host)
        if host == "localhost" or (address is not None and address.is_loopback):
            return False
        port = url.port or 443
        return not self._bypass_all and not any(
            rule.matches(host, address, port) for rule in self._no_proxy
        )


def _variable(environment: Mapping[str, str], name: str) -> str:
    """Return the variable with the name in upper case or, if it is not set, in lower case."""
    return environment.get(name) or environment.get(name.lower()) or ""


def _parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """Return the address in a text, or None if the text is not an address."""
    try:
        address = ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def _parse_rule(entry: str) -> _NoProxyRule | None:
    """Return the rule of a NO_PROXY entry, or None if the entry is invalid."""
    if "/" in entry:
        try:
            return _NoProxyRule(network=ip_network(entry, strict=False))
        except ValueError:
            return None
    address, port = _parse_address(entry), None
    if address is None:
        host, colon, number = entry.rpartition(":")
        if colon and number.isascii() and number.isdigit():
            entry, port = host, int(number)
            address = _parse_address(entry)
    if address is not None:
        return _NoProxyRule(network=ip_network(address), port=port)
    name = entry.removeprefix("*") if entry.startswith("*.") else entry
    if not name.strip("."):
        return None
    domain = name if name.startswith(".") else f".{name}"
    return _NoProxyRule(domain=domain, subdomains_only=name.startswith("."), port=port)
