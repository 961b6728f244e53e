"""Addresses that podsettle never speaks to on an image's behalf.

Whoever may create a pod chooses the image, and whoever runs a registry chooses where it redirects
to. Neither shall make podsettle ask the node, the cloud's metadata service or podsettle itself.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_METADATA = frozenset(
    map(
        ip_address,
        (
            "100.100.100.200",  # Alibaba Cloud
            "168.63.129.16",  # Azure's wire server
            "192.0.0.192",  # Oracle Cloud's older one
            "fd00:ec2::254",  # AWS
            "fd20:ce::254",  # Google Cloud
        ),
    )
)
"""Metadata services outside the link-local range, in which all others are."""

_THIS_NETWORK = IPv4Network("0.0.0.0/8")
_NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))


def literal(host: str) -> IPv4Address | IPv6Address | None:
    """The address that a URL's host is, None for a name.

    Raises ValueError for what libraries take for an address though it is none in writing, such as
    `127.1`, and for a name that is not ASCII.
    """
    if not host.isascii():
        raise ValueError(f"{host!r} is not a host")
    # As aiohttp tells addresses, which it does not look up, from names.
    if ":" in host or host.replace(".", "").isdigit():
        return ip_address(host.removeprefix("[").removesuffix("]"))
    return None


def is_refused(address: IPv4Address | IPv6Address | str) -> bool:
    """Whether an address is on the machine, on the link, or a cloud's metadata service.

    Private networks are not refused: registries live there.
    """
    found = ip_address(address) if isinstance(address, str) else address
    if isinstance(found, IPv6Address):
        inner = _embedded(found)
        if inner is not None:
            return is_refused(inner)
    return (
        found.is_loopback
        or found.is_link_local
        or found.is_unspecified
        or found.is_multicast
        or found in _METADATA
        or (found.version == 4 and (found in _THIS_NETWORK or found.is_reserved))
    )


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that packets to an IPv6 one end up at, where there is one."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if any(address in network for network in _NAT64):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None
