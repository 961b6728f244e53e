"""Protection against SSRF: decides which addresses podsettle must not connect to for an image.

The creator of a pod chooses the image, and the operator of a registry chooses its redirects.
Neither must be able to make podsettle send requests to the node, to the cloud's metadata service or
to podsettle itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

# Metadata services outside the link-local range. All other known ones are in that range.
_METADATA_ADDRESSES = frozenset(
    map(
        ip_address,
        (
            "100.100.100.200",  # Alibaba Cloud
            "168.63.129.16",  # Azure's wire server
            "192.0.0.192",  # Oracle Cloud, the older one
            "fd00:c1::a9fe:a9fe",  # Oracle Cloud
            "fd00:42::42",  # Scaleway
            "fd20:ce::254",  # Google Cloud
        ),
    )
)
# AWS: the metadata service (`::254`), and the instance's DNS, time and pod identity services.
_AWS_NETWORK = IPv6Network("fd00:ec2::/32")

# "This network" (RFC 6890). Linux connects to the machine itself for 0.0.0.0.
_THIS_NETWORK = IPv4Network("0.0.0.0/8")

# IPv6 networks whose last 32 bits are an IPv4 address.
_IPV4_EMBEDDING_NETWORKS = (
    IPv6Network("::/96"),  # IPv4-compatible (RFC 4291)
    IPv6Network("::ffff:0:0/96"),  # IPv4-mapped (RFC 4291)
    IPv6Network("::ffff:0:0:0/96"),  # IPv4-translated (RFC 2765)
    IPv6Network("64:ff9b::/96"),  # NAT64 (RFC 6052)
)
_LOCAL_NAT64_NETWORK = IPv6Network("64:ff9b:1::/48")
# The positions of the IPv4 address's bytes, for NAT64 prefixes of 48, 56, 64 and 96 bits (RFC 6052
# section 2.2) in that network (RFC 8215). All bytes behind them are 0. A network may use other
# NAT64 prefixes, which cannot be recognised.
_LOCAL_NAT64_BYTES = ((6, 7, 9, 10), (7, 9, 10, 11), (9, 10, 11, 12), (12, 13, 14, 15))


def parse_ip_literal(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address in the host of a URL, or None if the host is a name.

    Raises ValueError for an abbreviated address such as `127.1`, which libraries accept, and for a
    host that is not ASCII.
    """
    if not host.isascii():
        raise ValueError(f"{host!r} is not a host")
    # aiohttp distinguishes names in the same way: it resolves a host if this condition is false.
    if ":" in host or host.replace(".", "").isdigit():
        return ip_address(host.removeprefix("[").removesuffix("]"))
    return None


def is_forbidden(address: IPv4Address | IPv6Address | str) -> bool:
    """Return whether an address is loopback, link-local, multicast, reserved or a metadata service.

    Private networks are allowed, because many registries are in one.
    """
    parsed = ip_address(address) if isinstance(address, str) else address
    if isinstance(parsed, IPv6Address) and (
        parsed.is_site_local
        or parsed in _AWS_NETWORK
        or any(map(is_forbidden, _embedded_ipv4_addresses(parsed)))
    ):
        return True
    return (
        parsed.is_loopback
        or parsed.is_link_local
        or parsed.is_unspecified
        or parsed.is_multicast
        or parsed in _METADATA_ADDRESSES
        or (parsed.version == 4 and (parsed in _THIS_NETWORK or parsed.is_reserved))
    )


def _embedded_ipv4_addresses(address: IPv6Address) -> Iterator[IPv4Address]:
    """Yield the IPv4 addresses to which a gateway may forward packets for an IPv6 address."""
    if any(address in network for network in _IPV4_EMBEDDING_NETWORKS):
        yield IPv4Address(int(address) & 0xFFFFFFFF)
    if address.sixtofour is not None:
        yield address.sixtofour
    yield from address.teredo or ()
    if address in _LOCAL_NAT64_NETWORK:
        for positions in _LOCAL_NAT64_BYTES:
            if not any(address.packed[positions[-1] + 1 :]):
                found = IPv4Address(bytes(address.packed[position] for position in positions))
                # Nothing is forwarded to it, and the 0 is often of a shorter prefix.
                if found not in _THIS_NETWORK:
                    yield found
