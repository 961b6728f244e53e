"""What the author of a pod reads of connections that fail, and what the operator reads."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import trustme

from tests.support.image_fixtures import NewLookup
from tests.support.process import free_port
from tests.support.registry import look_up, query
from webhook.core.images import Unavailable
from webhook.images.lookup import ImageLookup, LookupLimits


@asynccontextmanager
async def listening(
    *, reads: bool = False, context: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Accept connections, and close them at once or, with `reads`, when the client does."""
    ended: list[asyncio.Event] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended.append(asyncio.Event())
        if reads:
            await reader.read()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        ended[-1].set()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for each in ended:
            await each.wait()


async def reason(lookup: ImageLookup, host: str) -> str:
    """Return the reason for a failed look-up, without the host."""
    answer = await look_up(lookup, query(f"{host}/a:1"))
    assert isinstance(answer, Unavailable)
    return answer.why.replace(host, "HOST")


async def test_each_failed_connection_has_the_same_reason_for_the_author_of_a_pod(
    new_lookup: NewLookup, caplog: pytest.LogCaptureFixture
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    lookup = new_lookup(limits=LookupLimits(request_timeout=0.2))
    async with (
        listening() as plain,
        listening(reads=True) as silent,
        listening(context=context) as untrusted,
    ):
        reasons = {
            "closed": await reason(lookup, f"127.0.0.1:{free_port()}"),
            "plain": await reason(lookup, plain),
            "silent": await reason(lookup, silent),
            "untrusted": await reason(lookup, untrusted),
            "unresolved": await reason(lookup, "registry.invalid"),
        }
    text = "HOST/a:1: 'HOST': podsettle gets no answer; its log has the cause"
    assert reasons == dict.fromkeys(reasons, text)
    causes = "\n".join(record.getMessage() for record in caplog.records)
    assert "Connect call failed ('127.0.0.1', " in causes
    assert "no answer in time" in causes
    assert "TLS: CERTIFICATE_VERIFY_FAILED" in causes
    assert "'registry.invalid': " in causes


async def test_log_of_failed_connections_is_bounded(
    new_lookup: NewLookup, caplog: pytest.LogCaptureFixture
) -> None:
    lookup = new_lookup()
    for _ in range(25):
        await reason(lookup, f"127.0.0.1:{free_port()}")
    assert len(caplog.records) == 20
