"""Tests of DNS look-ups of registries that hang, and of other look-ups at the same time."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import yaml
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import AsyncResolver

from tests.support.factories import container, pod, policy_document
from tests.support.image_factories import image_policy
from tests.support.name_server import silent_dns, silent_dns_needed
from tests.support.process import start_server
from tests.support.registry import look_up, query
from tests.support.reviews import review
from tests.support.waiting import TIMEOUT_SECONDS, await_that
from webhook.core.images import Unavailable
from webhook.images.lookup import ImageLookup

NEVER_ASKED = "refusing to connect to localhost: loopback, link-local or metadata address"
"""The reason for `localhost/a:1` after its name was resolved."""


class Names(AbstractResolver):
    """A resolver whose look-ups of `hang-*` hang until they are cancelled."""

    def __init__(self) -> None:
        self.hanging = asyncio.Semaphore(0)
        self.is_closed = False

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        if host.startswith("hang-"):
            self.hanging.release()
            await asyncio.Event().wait()
        return await AsyncResolver().resolve(host, port, family)

    async def close(self) -> None:
        self.is_closed = True


async def unavailable_reason(lookup: ImageLookup, image: str, **fields: Any) -> str:
    answer = await look_up(lookup, query(image, "*", **fields))
    assert isinstance(answer, Unavailable)
    return answer.why.removeprefix(f"{image}: ")


async def test_registry_name_is_resolved_while_the_default_executor_is_busy() -> None:
    loop, release = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    lookup = ImageLookup()
    # The first look-up creates the TLS context in the default executor.
    assert NEVER_ASKED in await unavailable_reason(lookup, "localhost/first:1")
    busy = asyncio.create_task(asyncio.to_thread(release.wait))
    await asyncio.sleep(0)
    try:
        assert NEVER_ASKED in await unavailable_reason(lookup, "localhost/a:1")
    finally:
        release.set()
        await busy
        await lookup.aclose()


async def test_hanging_registry_names_block_no_other_namespace_and_end_with_the_look_ups() -> None:
    names = Names()
    lookup = ImageLookup(resolver=names)
    pods = [
        asyncio.create_task(unavailable_reason(lookup, f"hang-{n}.example/a:1", namespace="a"))
        for n in range(12)
    ]
    async with asyncio.timeout(30):
        for _ in pods:
            await names.hanging.acquire()
        assert await unavailable_reason(lookup, "localhost/a:1", namespace="a") == (
            "12 look-ups for namespace a are under way"
        )
        assert NEVER_ASKED in await unavailable_reason(lookup, "localhost/a:1", namespace="b")
        assert not any(each.done() for each in pods)
        await lookup.aclose()
    assert names.is_closed
    for each in pods:
        each.cancel()


# The whole server, on a machine whose name server does not answer


def warnings(client: httpx.Client, namespace: str, *hosts: str) -> str:
    """Return the warnings for a pod with one container from each registry."""
    containers = [container(f"c{n}", image=f"{host}/a:1") for n, host in enumerate(hosts)]
    made = pod(containers=containers, restartPolicy="Never")
    made["metadata"]["namespace"] = namespace
    answer = client.post("/mutate?timeout=2s", json=review(made))
    return "\n".join(answer.json()["response"].get("warnings", []))


@silent_dns_needed
def test_silent_name_server_holds_no_threads_and_blocks_no_other_namespace(tmp_path: Path) -> None:
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    (manifests / "policy.yaml").write_text(yaml.safe_dump(policy_document(**image_policy("*"))))
    with (
        silent_dns(tmp_path) as begin,
        start_server(manifests, tmp_path / "certs", prefix=begin) as server,
        server.client() as client,
    ):
        # The first reviews may fail, because the HTTP client is still being imported.
        threads = len(os.listdir(f"/proc/{server.process.pid}/task"))
        late = "the registry did not answer within"
        ten = [f"registry-{n}.example" for n in range(10)]
        await_that(lambda: warnings(client, "a", *ten).count(late) == 10, "no name is found")
        await_that(lambda: NEVER_ASKED in warnings(client, "b", "localhost"), "b is served")
        # One is the first look-up's of c-ares, and some are those of the default executor.
        assert len(os.listdir(f"/proc/{server.process.pid}/task")) < threads + 10
        server.process.terminate()
        assert server.process.wait(TIMEOUT_SECONDS) == 0
