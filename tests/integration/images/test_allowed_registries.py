"""Tests of the registries and addresses that podsettle refuses to connect to."""

from __future__ import annotations

import socket

import pytest
import trustme
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from tests.support.image_factories import APP
from tests.support.registry import Image, look_up, query, serving, start_server
from webhook.core.images import Unavailable
from webhook.images.http_session import SsrfSafeResolver
from webhook.images.lookup import ImageLookup

FORBIDDEN = "loopback, link-local or metadata address"


class Fixed(AbstractResolver):
    """A resolver that returns the same addresses for every name."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            {"hostname": host, "host": address, "port": port, "family": family, "proto": 0,
             "flags": 0}
            for address in self.addresses
        ]  # fmt: skip

    async def close(self) -> None:
        pass


async def test_resolver_drops_forbidden_addresses_of_a_name() -> None:
    both = SsrfSafeResolver(Fixed("169.254.169.254", "10.0.0.1", "::1"))
    assert [result["host"] for result in await both.resolve("x")] == ["10.0.0.1"]
    with pytest.raises(OSError, match=f"refusing to connect to x: {FORBIDDEN}"):
        await SsrfSafeResolver(Fixed("127.0.0.1")).resolve("x")
    assert await SsrfSafeResolver(Fixed()).resolve("x") == []


@pytest.mark.parametrize(
    ("registries", "asked"),
    [(["127.0.0.1:*"], False), (["*:*"], False), (["127.0.0.1"], False), (["quay.io"], False)],
)
async def test_forbidden_address_needs_an_exact_entry_in_registries(
    registries: list[str], asked: bool, ca: trustme.CA, image: Image, lookup: ImageLookup
) -> None:
    async with start_server(ca, serving(image), "localhost") as server:
        answer = await look_up(lookup, query(f"{server.host}/a:1", *registries))
        assert isinstance(answer, Unavailable)
        assert bool(server.seen) is asked
        # A name that resolves to such an address is refused, even if the policy lists it.
        name = f"localhost:{server.host.rpartition(':')[2]}"
        answer = await look_up(lookup, query(f"{name}/a:1", name))
        assert isinstance(answer, Unavailable)
        assert FORBIDDEN in answer.why
        assert server.seen == []
        assert await look_up(lookup, query(f"{server.host}/a:1", server.host)) == APP


async def test_registry_that_the_policy_does_not_list_gets_no_request(
    ca: trustme.CA, image: Image, lookup: ImageLookup
) -> None:
    """The same address may be a mirror of another registry. That gives no permission."""
    async with start_server(ca, serving(image)) as server:
        mirrors = {"mirrored.example": server.host}
        answer = await look_up(lookup, query(f"{server.host}/a:1", "*.example", mirrors=mirrors))
        assert answer == Unavailable(
            f"registry {server.host} is not among the policy's imageConfig.registries"
        )
        assert server.seen == []
        assert await look_up(lookup, query("mirrored.example/a:1", "x", mirrors=mirrors)) == APP


async def test_permission_of_one_policy_does_not_apply_to_another(
    ca: trustme.CA, image: Image, lookup: ImageLookup
) -> None:
    async with start_server(ca, serving(image)) as server:
        assert await look_up(lookup, query(f"{server.host}/a:1", server.host)) == APP
        answer = await look_up(lookup, query(f"{server.host}/a:1", "127.0.0.1:*"))
        assert isinstance(answer, Unavailable)


def test_ambiguous_url_is_refused_or_normalized() -> None:
    """aiohttp connects to the host that yarl parses."""
    with pytest.raises(ValueError, match="backslash"):
        URL("https://127.0.0.1\\@quay.io/")
    assert URL("https://\uff11\uff12\uff17.0.0.1/").raw_host == "127.0.0.1"
