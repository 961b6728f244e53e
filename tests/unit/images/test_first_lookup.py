"""The first look-up creates the TLS context and the HTTP client, and `aclose` ends all look-ups."""

from __future__ import annotations

import asyncio
import ssl
import threading
from typing import Any

from webhook.client_tls_context import client_context
from webhook.core.images import ImageQuery, LookupRules, Unavailable
from webhook.images.lookup import ImageLookup

# The address is forbidden, so no request is sent.
HOST = "127.0.0.1:1"


def queries(*names: str) -> list[ImageQuery]:
    return [ImageQuery(f"{HOST}/{name}:1", LookupRules(registries=(HOST,))) for name in names]


async def test_concurrent_first_look_ups_share_a_context_from_another_thread() -> None:
    threads: list[int] = []

    def new_context() -> ssl.SSLContext:
        threads.append(threading.get_ident())
        return client_context()

    lookup = ImageLookup(new_context=new_context)
    assert threads == []
    found = await lookup.find(queries("a", "b", "c"), 60)
    await lookup.find(queries("d"), 60)
    await lookup.aclose()
    (thread,) = threads
    assert thread != threading.get_ident()
    assert "internal error" not in str(found)


async def test_look_up_after_one_that_found_no_cas_tries_again() -> None:
    errors: list[Exception] = [FileNotFoundError("ca.pem")]

    def new_context() -> ssl.SSLContext:
        if errors:
            raise errors.pop()
        return client_context()

    lookup = ImageLookup(new_context=new_context)
    first, second = queries("a", "b")
    failed = await lookup.find([first], 60)
    assert failed == {first: Unavailable("internal error: FileNotFoundError")}
    after = (await lookup.find([second], 60))[second]
    await lookup.aclose()
    assert isinstance(after, Unavailable)
    assert "internal error" not in after.why


async def test_look_up_that_closing_ends_has_a_result() -> None:
    begun = asyncio.Event()

    class HangingSecrets:
        async def read(self, *_: object) -> Any:
            begun.set()
            await asyncio.Event().wait()

    lookup = ImageLookup(HangingSecrets())
    query = ImageQuery(f"{HOST}/a:1", LookupRules(registries=(HOST,)), namespace="a")
    finding = asyncio.create_task(lookup.find([query], 60))
    await begun.wait()
    await lookup.aclose()
    assert await finding == {query: Unavailable("the registry did not answer within 60 s")}
