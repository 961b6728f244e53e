"""The exceptions in NO_PROXY, parsed as golang.org/x/net/http/httpproxy parses them.

kubectl and the container runtimes on the nodes get the same value and use this Go package. Unlike
`urllib`, the package accepts CIDRs and ports in NO_PROXY, and spaces after its commas.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Self

# What Go's net.SplitHostPort accepts. An IPv6 address with a port has brackets.
_HOST_AND_PORT = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*):([^:\[\]]*)")


@dataclass(frozen=True)
class _NoProxyRule:
    """One entry of NO_PROXY, which names hosts that podsettle connects to directly."""

    network: IPv4Network | IPv6Network | None = None
    domain: str = ""
    """The domain with a dot in front, or an empty text if the entry is an address or a network."""
    subdomains_only: bool = False
    """Whether the rule matches only names below the domain, not the domain itself."""
    port: str = ""
    """The port as it is written, or an empty text for all ports."""

    def matches(self, host: str, address: IPv4Address | IPv6Address | None, port: int) -> bool:
        """Return whether a host matches. `address` is the host's address if it is not a name."""
        if self.port and self.port != str(port):
            return False
        if address is not None:
            return self.network is not None and address in self.network
        if not self.domain:
            return False
        return host.endswith(self.domain) or (
            not self.subdomains_only and host == self.domain.removeprefix(".")
        )


@dataclass(frozen=True)
class NoProxy:
    """The hosts that are reached without the proxy of the environment."""

    _bypass_all: bool
    _rules: tuple[_NoProxyRule, ...]

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Return the exceptions of an environment."""
        value = proxy_variable(environment, "NO_PROXY")
        entries = [entry.strip().lower() for entry in value.split(",")]
        rules = (_parse_rule(entry) for entry in entries if entry)
        return cls("*" in entries, tuple(rule for rule in rules if rule))

    def applies_to(self, host: str, port: int) -> bool:
        """Return whether a host is reached directly. Loopback addresses always are."""
        host = host.lower()
        address = parse_address(host)
        if host == "localhost" or (address is not None and address.is_loopback):
            return True
        return self._bypass_all or any(rule.matches(host, address, port) for rule in self._rules)


def proxy_variable(environment: Mapping[str, str], name: str) -> str:
    """Return the variable with the name in upper case or, if it is not set, in lower case."""
    return environment.get(name) or environment.get(name.lower()) or ""


def parse_address(text: str) -> IPv4Address | IPv6Address | None:
    """Return the address in a text, as Go reads it, or None if the text is not an address."""
    try:
        address = ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def _parse_rule(entry: str) -> _NoProxyRule | None:
    """Return the rule of a NO_PROXY entry, or None if the entry is invalid."""
    if "/" in entry:
        network, _, length = entry.partition("/")
        if not (length.isascii() and length.isdigit()):
            return None
        try:
            return _NoProxyRule(network=ip_network((network, int(length)), strict=False))
        except ValueError:
            return None
    split = _HOST_AND_PORT.fullmatch(entry)
    host, port = split.groups() if split else (entry, "")
    # Without a port, an address with brackets is the name of no host.
    address = None if host == entry and "[" in host else parse_address(host)
    if address is not None:
        return _NoProxyRule(network=ip_network(address), port=port)
    name = host.removeprefix("*") if host.startswith("*.") else host
    if not name.strip("."):
        return None
    domain = name if name.startswith(".") else f".{name}"
    return _NoProxyRule(domain=domain, subdomains_only=name.startswith("."), port=port)
