"""Tests of DNS look-ups of registries that hang, and of other look-ups at the same time."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.support.factories import container, pod, policy_document
from tests.support.image_factories import image_policy
from tests.support.process import PODSETTLE, free_port, write_certificates
from tests.support.registry import look_up, query
from tests.support.reviews import review
from tests.support.silent_dns import silent_dns, silent_dns_needed
from tests.support.waiting import TIMEOUT_SECONDS, await_that
from webhook.core.images import Unavailable
from webhook.dns_resolver import Address, Resolver, resolve
from webhook.images.lookup import ImageLookup

NEVER_ASKED = "refusing to connect to localhost: loopback, link-local or metadata address"
"""The reason for `localhost/a:1` after its name was resolved."""


class Names:
    """A resolver whose look-ups of `hang-*` hang until the end of the test."""

    def __init__(self) -> None:
        self.answer = threading.Event()

    def __call__(self, host: str, port: int, family: int) -> list[Address]:
        if host.startswith("hang-"):
            self.answer.wait()
            raise socket.gaierror(socket.EAI_AGAIN, "no name server answered")
        return resolve(host, port, family)


@pytest.fixture
def names() -> Iterator[Names]:
    made = Names()
    yield made
    made.answer.set()


@pytest.fixture
async def hanging(names: Names) -> AsyncIterator[ImageLookup]:
    """Image look-ups with at most 3 DNS look-ups per namespace."""
    lookup = ImageLookup(resolver=Resolver(64, 3, resolve=names))
    yield lookup
    await lookup.aclose()


async def unavailable_reason(lookup: ImageLookup, image: str, **fields: Any) -> str:
    answer = await look_up(lookup, query(image, "*", **fields))
    assert isinstance(answer, Unavailable)
    return answer.why.removeprefix(f"{image}: ")


def begin_to_hang(lookup: ImageLookup, namespace: str) -> list[asyncio.Task[str]]:
    """Start look-ups for three pods of a namespace, whose DNS look-ups hang."""
    return [
        asyncio.create_task(
            unavailable_reason(lookup, f"hang-{n}.example/a:1", namespace=namespace)
        )
        for n in range(3)
    ]


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


async def test_hanging_registry_names_block_no_other_thread_and_no_other_namespace(
    hanging: ImageLookup, names: Names
) -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    pods = begin_to_hang(hanging, "a")
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await asyncio.to_thread(int)
        assert NEVER_ASKED in await unavailable_reason(hanging, "localhost/a:1", namespace="b")
    assert not any(each.done() for each in pods)
    names.answer.set()
    reasons = await asyncio.gather(*pods)
    assert ["podsettle gets no answer" in each for each in reasons] == [True] * 3


async def test_refusal_at_the_limit_of_a_namespace_is_not_cached(
    hanging: ImageLookup, names: Names
) -> None:
    pods = begin_to_hang(hanging, "a")
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        assert await unavailable_reason(hanging, "localhost/a:1", namespace="a") == (
            "3 DNS look-ups for namespace a are in flight; no more start until one ends"
        )
    names.answer.set()
    await asyncio.gather(*pods)
    assert NEVER_ASKED in await unavailable_reason(hanging, "localhost/a:1", namespace="a")


async def test_refusal_of_one_namespace_does_not_apply_to_another(hanging: ImageLookup) -> None:
    """Both namespaces need the same image. The first one has reached its limit."""
    begin_to_hang(hanging, "a")
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        first, second = await asyncio.gather(
            *(
                unavailable_reason(hanging, "localhost/a:1", namespace=namespace)
                for namespace in ("a", "b")
            )
        )
    assert "for namespace a are in flight" in first
    assert NEVER_ASKED in second


# The whole server, on a machine whose name server does not answer


@contextmanager
def serving_without_dns(directory: Path) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """Run a server that may connect to every registry, and whose name server does not answer."""
    certs, manifests, port = directory / "certs", directory / "manifests", free_port()
    write_certificates(certs)
    manifests.mkdir()
    (manifests / "policy.yaml").write_text(yaml.safe_dump(policy_document(**image_policy("*"))))
    arguments = ["--manifests", manifests, "--certs-dir", certs, "--port", port]
    with silent_dns(directory) as begin, (directory / "log").open("w") as log:
        process = subprocess.Popen(
            [*begin, PODSETTLE, "serve", *map(str, arguments)],
            stdout=log,
            stderr=log,
            text=True,
            env={"PATH": os.environ["PATH"], "KUBECONFIG": os.devnull},
        )
        context = ssl.create_default_context(cafile=certs / "ca.crt")
        try:
            with httpx.Client(
                base_url=f"https://127.0.0.1:{port}", verify=context, timeout=TIMEOUT_SECONDS
            ) as client:
                await_that(lambda: _is_ready(client), "the server is ready")
                yield process, client
        finally:
            process.kill()
            process.wait(TIMEOUT_SECONDS)


def _is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False


def warnings(client: httpx.Client, namespace: str, *hosts: str) -> str:
    """Return the warnings for a pod with one container from each registry."""
    containers = [container(f"c{n}", image=f"{host}/a:1") for n, host in enumerate(hosts)]
    made = pod(containers=containers, restartPolicy="Never")
    made["metadata"]["namespace"] = namespace
    answer = client.post("/mutate?timeout=2s", json=review(made))
    return "\n".join(answer.json()["response"].get("warnings", []))


def metric(client: httpx.Client, name: str) -> float:
    lines = client.get("/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


@silent_dns_needed
def test_silent_name_server_blocks_only_the_namespace_at_its_limit(tmp_path: Path) -> None:
    with serving_without_dns(tmp_path) as (process, client):
        # The first reviews may fail, because the HTTP client is still being imported.
        full = "8 DNS look-ups for namespace a are in flight"
        ten = [f"registry-{n}.example" for n in range(10)]
        await_that(lambda: full in warnings(client, "a", *ten), "the share is used up")
        await_that(lambda: NEVER_ASKED in warnings(client, "b", "localhost"), "b is served")
        assert metric(client, "podsettle_dns_lookups_refused_total") >= 2
        await_that(lambda: metric(client, "podsettle_dns_lookups_stuck") == 8, "they are stuck")
        process.terminate()
        assert process.wait(TIMEOUT_SECONDS) == 0
