"""Addresses that podsettle never speaks to on an image's behalf.

Whoever may create a pod chooses the image, and whoever runs a registry chooses where it redirects
to. Neither shall make podsettle ask the node, the cloud's metadata service or podsettle itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_METADATA = frozenset(
    map(
        ip_address,
        (
            "100.100.100.200",  # Alibaba Cloud
            "168.63.129.16",  # Azure's wire server
            "192.0.0.192",  # Oracle Cloud's older one
            "fd00:c1::a9fe:a9fe",  # Oracle Cloud
            "fd00:42::42",  # Scaleway
            "fd20:ce::254",  # Google Cloud
        ),
    )
)
"""Metadata services outside the link-local range, in which all others are."""
_AWS = IPv6Network("fd00:ec2::/32")
"""The metadata service (`::254`), and others of an instance's own: DNS, time, pod identities."""

_THIS_NETWORK = IPv4Network("0.0.0.0/8")

_IN_LAST_BITS = (
    IPv6Network("::/96"),  # IPv4-compatible (RFC 4291)
    IPv6Network("::ffff:0:0/96"),  # IPv4-mapped (RFC 4291)
    IPv6Network("::ffff:0:0:0/96"),  # IPv4-translated (RFC 2765)
    IPv6Network("64:ff9b::/96"),  # NAT64 (RFC 6052)
    IPv6Network("64:ff9b:1::/48"),  # NAT64 (RFC 8215), in its usual form
)
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
_LOCAL_NAT64_FORMS = ((6, 7, 9, 10), (7, 9, 10, 11), (9, 10, 11, 12))
"""Which bytes are the IPv4 address behind a prefix of 48, 56 and 64 bits (RFC 6052 section 2.2);
those behind it are 0. A network's own prefix elsewhere shows in nothing."""


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
    if isinstance(found, IPv6Address) and (
        found.is_site_local or found in _AWS or any(map(is_refused, _embedded(found)))
    ):
        return True
    return (
        found.is_loopback
        or found.is_link_local
        or found.is_unspecified
        or found.is_multicast
        or found in _METADATA
        or (found.version == 4 and (found in _THIS_NETWORK or found.is_reserved))
    )


def _embedded(address: IPv6Address) -> Iterator[IPv4Address]:
    """The IPv4 addresses that packets to an IPv6 one may end up at."""
    if any(address in network for network in _IN_LAST_BITS):
        yield IPv4Address(int(address) & 0xFFFFFFFF)
    if address.sixtofour is not None:
        yield address.sixtofour
    yield from address.teredo or ()
    if address in _LOCAL_NAT64:
        for form in _LOCAL_NAT64_FORMS:
            if not any(address.packed[form[-1] + 1 :]):
                yield IPv4Address(bytes(address.packed[position] for position in form))
