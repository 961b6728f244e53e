"""The proxy that registries are asked through, by HTTPS_PROXY and NO_PROXY.

Both are read as golang.org/x/net/http/httpproxy reads them, because the nodes' runtimes get the
same values: unlike in `urllib`, NO_PROXY may hold CIDRs and ports, and spaces after its commas.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Self

from yarl import URL


@dataclass(frozen=True)
class _Exception:
    """One entry of NO_PROXY: hosts that are connected to directly."""

    network: IPv4Network | IPv6Network | None = None
    domain: str = ""
    """With a dot in front."""
    is_suffix_only: bool = False
    """Whether the domain itself is none of them, only what is below it."""
    port: int | None = None

    def covers(self, host: str, address: IPv4Address | IPv6Address | None, port: int) -> bool:
        """Whether a host, and the address that it is if it is one, is among them."""
        if self.port is not None and self.port != port:
            return False
        if address is not None:
            return self.network is not None and address in self.network
        if not self.domain:
            return False
        return host.endswith(self.domain) or (
            not self.is_suffix_only and host == self.domain.removeprefix(".")
        )


@dataclass(frozen=True)
class Proxy:
    """An HTTP proxy, and which hosts are connected to without it."""

    url: URL
    """Without user name and password."""
    headers: Mapping[str, str]
    """What the proxy gets with CONNECT: the user name and password, if any."""
    _everything_is_direct: bool
    _exceptions: tuple[_Exception, ...]

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self | None:
        """The proxy for `https://` URLs, or None if there is none.

        Raises ValueError for an HTTPS_PROXY that is not the URL of an HTTP proxy. Its message does
        not repeat the value, which may hold a password.
        """
        value = _either(environment, "HTTPS_PROXY")
        if not value:
            return None
        wrong = "HTTPS_PROXY is not a URL such as http://proxy.example:3128"
        try:
            url = URL(value if "://" in value else f"http://{value}")
            user, password = url.user, url.password
            port = url.port
        except ValueError:
            raise ValueError(wrong) from None
        if url.scheme not in ("http", "https") or not url.host or not port:
            raise ValueError(wrong)
        headers = {}
        if user is not None:
            pair = b64encode(f"{user}:{password or ''}".encode()).decode()
            headers["Proxy-Authorization"] = f"Basic {pair}"
        entries = [entry.strip().lower() for entry in _either(environment, "NO_PROXY").split(",")]
        found = (_exception(entry) for entry in entries if entry)
        return cls(url.origin(), headers, "*" in entries, tuple(each for each in found if each))

    def is_for(self, url: URL) -> bool:
        """Whether a URL is asked through the proxy. The machine itself never is."""
        host = (url.raw_host or "").lower().removesuffix(".")
        address = _address(host)
        if host == "localhost" or (address is not None and address.is_loopback):
            return False
        port = url.port or 443
        return not self._everything_is_direct and not any(
            each.covers(host, address, port) for each in self._exceptions
        )


def _either(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.lower()) or ""


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found


def _exception(entry: str) -> _Exception | None:
    """What an entry of NO_PROXY says; None for one that says nothing."""
    if "/" in entry:
        try:
            return _Exception(network=ip_network(entry, strict=False))
        except ValueError:
            return None
    address, port = _address(entry), None
    if address is None:
        host, colon, number = entry.rpartition(":")
        if colon and number.isascii() and number.isdigit():
            entry, port = host, int(number)
            address = _address(entry)
    if address is not None:
        return _Exception(network=ip_network(address), port=port)
    name = entry.removeprefix("*") if entry.startswith("*.") else entry
    if not name.strip("."):
        return None
    domain = name if name.startswith(".") else f".{name}"
    return _Exception(domain=domain, is_suffix_only=name.startswith("."), port=port)
