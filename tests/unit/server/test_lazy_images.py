"""Tests of image look-ups that are loaded for the first query."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterable
from pathlib import Path

import httpx
import pytest
import yaml

from tests.support.factories import container, pod, policy_document
from tests.support.image_factories import image_policy
from tests.support.patches import without_notes
from tests.support.reviews import patch_of, review
from tests.support.server_fixtures import make_app
from webhook.cluster.manifest_source import ManifestsSource
from webhook.core.images import (
    MAX_IMAGES_PER_POD,
    ImageConfig,
    ImageQuery,
    ImageResolver,
    KnownImages,
    LookupRules,
    Unavailable,
)
from webhook.server.lazy_images import LazyImageResolver

FOUND = ImageConfig(("/app",), ())
A, B = (ImageQuery(name, LookupRules()) for name in ("a", "b"))


class Resolver:
    """A resolver that finds every image at once."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, int | None]] = []
        self.closed = False

    @property
    def stuck_dns_lookups(self) -> int:
        return 3

    async def find(
        self,
        queries: Iterable[ImageQuery],
        seconds: float,
        *,
        max_images: int | None = MAX_IMAGES_PER_POD,
    ) -> KnownImages:
        self.asked.append((seconds, max_images))
        return dict.fromkeys(queries, FOUND)

    async def aclose(self) -> None:
        self.closed = True


class Loader:
    """Loads a resolver, or raises `error`, when `may_finish` is set. Records its threads."""

    def __init__(self) -> None:
        self.resolver = Resolver()
        self.error: Exception | None = None
        self.threads: list[int] = []
        self.started = threading.Event()
        self.may_finish = threading.Event()
        self.may_finish.set()

    def __call__(self) -> ImageResolver:
        self.threads.append(threading.get_ident())
        self.started.set()
        assert self.may_finish.wait(60)
        if self.error is not None:
            raise self.error
        return self.resolver


@pytest.fixture
def loader() -> Loader:
    return Loader()


async def test_nothing_is_loaded_before_the_first_query(loader: Loader) -> None:
    images = LazyImageResolver(loader)
    assert await images.find([], 30) == {}
    assert images.stuck_dns_lookups == 0
    await images.aclose()
    assert loader.threads == []


async def test_concurrent_queries_share_one_load_outside_of_the_event_loops_thread(
    loader: Loader,
) -> None:
    images = LazyImageResolver(loader)
    answers = await asyncio.gather(*(images.find([query], 30) for query in (A, B, A)))
    assert answers == [{A: FOUND}, {B: FOUND}, {A: FOUND}]
    (thread,) = loader.threads
    assert thread != threading.get_ident()
    assert images.stuck_dns_lookups == 3
    await images.aclose()
    assert loader.resolver.closed


async def test_time_of_the_load_is_taken_from_the_time_of_the_query(loader: Loader) -> None:
    now = 0.0

    def load() -> ImageResolver:
        nonlocal now
        now = 4.0
        return loader()

    images = LazyImageResolver(load, clock=lambda: now)
    await images.find([A], 6, max_images=None)
    await images.find([A], 6)
    assert loader.resolver.asked == [(2.0, None), (6.0, MAX_IMAGES_PER_POD)]


async def test_slow_load_leaves_the_first_pod_unchanged_and_serves_the_next(loader: Loader) -> None:
    loader.may_finish.clear()
    images = LazyImageResolver(loader)
    assert await images.find(iter([A, B]), 0) == dict.fromkeys(
        (A, B), Unavailable("podsettle's image look-ups were not loaded within 0 s")
    )
    loader.may_finish.set()
    assert await images.find([A], 30) == {A: FOUND}
    assert len(loader.threads) == 1


async def test_failed_load_is_logged_once_and_repeated_after_a_pause(
    loader: Loader, caplog: pytest.LogCaptureFixture
) -> None:
    now = 100.0
    loader.error = ImportError("no module named aiohttp")
    images = LazyImageResolver(loader, retry_seconds=30, clock=lambda: now)
    failed = Unavailable("podsettle's image look-ups cannot be loaded: ImportError")
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert await images.find([A], 30) == {A: failed}
    (record,) = caplog.records
    assert "no module named aiohttp" in caplog.text
    assert record.message.startswith("image look-up: cannot be loaded")
    loader.error = None
    now += 29
    assert await images.find([A], 30) == {A: failed}
    now += 2
    assert await images.find([A], 30) == {A: FOUND}
    assert len(loader.threads) == 2


async def test_close_during_a_load_ends_the_queries_that_wait_for_it(loader: Loader) -> None:
    loader.may_finish.clear()
    images = LazyImageResolver(loader)
    waiting = asyncio.create_task(images.find([A], 30))
    assert await asyncio.to_thread(loader.started.wait, 60)
    async with asyncio.timeout(30):
        await images.aclose()
    loader.may_finish.set()
    assert isinstance((await waiting)[A], Unavailable)
    assert not loader.resolver.asked


async def test_pod_is_admitted_unchanged_if_image_look_ups_cannot_be_loaded(tmp_path: Path) -> None:
    manifest = policy_document(**image_policy("registry.example"))
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(manifest))
    source = ManifestsSource(tmp_path)
    source.refresh()

    def fail(*_arguments: object, **_options: object) -> ImageResolver:
        raise ImportError("no module named aiohttp")

    app = make_app(source, new_image_resolver=fail)
    transport = httpx.ASGITransport(app)
    body = review(
        pod(containers=[container("main", image="registry.example/a")], restartPolicy="Never")
    )
    async with httpx.AsyncClient(transport=transport, base_url="https://podsettle") as client:
        answer = (await client.post("/mutate", json=body)).json()
    assert answer["response"]["allowed"] is True
    assert without_notes(patch_of(answer)) == []
    (warning,) = answer["response"]["warnings"]
    assert "ImageConfigUnavailable: main: podsettle's image look-ups cannot be loaded" in warning
