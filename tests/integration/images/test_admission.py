"""Tests of POST /mutate with image look-ups: the deadline, the cache and the metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
import yaml
from aiohttp import web

from tests.support.factories import SETTINGS, container, pod, policy_document
from tests.support.image_factories import HELPER, image_policy
from tests.support.patches import without_notes
from tests.support.registry import Image, RunningRegistry, serving, start_server
from tests.support.reviews import patch_of, review
from tests.support.server_fixtures import make_app
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.server.metrics import BUCKETS
from webhook.server.reviews.handler import IMAGE_LOOKUP_SHARE, NAMESPACE_LOOKUP_SECONDS
from webhook.server.reviews.request import answer_seconds


@pytest.fixture(autouse=True)
def trusted(monkeypatch: pytest.MonkeyPatch, ca: trustme.CA, tmp_path: Path) -> None:
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))


@asynccontextmanager
async def webhook(directory: Path, host: str) -> AsyncIterator[httpx.AsyncClient]:
    """Run a webhook with one policy, which allows look-ups at one registry."""
    manifests = directory / "manifests"
    manifests.mkdir()
    (manifests / "policy.yaml").write_text(yaml.safe_dump(policy_document(**image_policy(host))))
    source = ManifestsSource(manifests)
    source.refresh()
    app = make_app(source, settings=SETTINGS)
    transport = httpx.ASGITransport(app)
    client = httpx.AsyncClient(transport=transport, base_url="https://podsettle")
    async with app.router.lifespan_context(app), client:
        yield client


def new(host: str) -> dict[str, Any]:
    quick = container("main", image=f"{host}/mutated:1")
    return review(pod(containers=[quick], restartPolicy="Never"))


async def test_concurrent_reviews_share_one_look_up(
    registry: RunningRegistry, image: Image, tmp_path: Path
) -> None:
    registry.push("mutated", "1", image)
    async with webhook(tmp_path, registry.host) as client:
        answers = await asyncio.gather(
            *(client.post("/mutate?timeout=30s", json=new(registry.host)) for _ in range(500))
        )
    for answer in answers:
        assert answer.status_code == 200
        added = {op["path"]: op.get("value") for op in patch_of(answer.json())}
        assert added["/spec/containers/0/command"] == [*HELPER, "/bin/app", "--x"]
        assert added["/spec/containers/0/args"] == ["run", "$$(HOME)"]
    methods = [line.split()[0] for line in registry.requests(path="mutated")]
    assert methods == ["HEAD", "GET", "GET"]


async def test_container_with_a_hanging_registry_is_admitted_unwrapped_within_the_deadline(
    ca: trustme.CA, image: Image, tmp_path: Path
) -> None:
    go = asyncio.Event()
    serve = serving(image)

    async def hang(request: web.Request) -> web.StreamResponse:
        await go.wait()
        return await serve(request)

    async with start_server(ca, hang) as server, webhook(tmp_path, server.host) as client:
        answer = (await client.post("/mutate?timeout=500ms", json=new(server.host))).json()
        assert answer["response"]["allowed"] is True
        assert without_notes(patch_of(answer)) == []
        (warning,) = answer["response"]["warnings"]
        assert warning.startswith("podsettle: postInitSleep: ImageConfigUnavailable: main: the reg")
        go.set()
        later = (await client.post("/mutate?timeout=30s", json=new(server.host))).json()
        assert without_notes(patch_of(later))


async def test_look_ups_are_counted_by_result_and_cached_ones_are_not(
    registry: RunningRegistry, image: Image, tmp_path: Path
) -> None:
    registry.push("mutated", "1", image)
    missing = pod(containers=[container("main", image=f"{registry.host}/none:1")])
    missing["spec"]["restartPolicy"] = "Never"
    async with webhook(tmp_path, registry.host) as client:

        async def counted() -> dict[str, float]:
            lines = (await client.get("/metrics")).text.splitlines()
            name = "podsettle_image_lookups_total{result="
            found = [line.removeprefix(name) for line in lines if line.startswith(name)]
            return {each.split('"')[1]: float(each.split()[1]) for each in found}

        # The counters start at zero, so that a rate includes the first look-up.
        assert await counted() == {"found": 0, "failed": 0}
        for _ in range(3):
            await client.post("/mutate?timeout=30s", json=new(registry.host))
        # One look-up of the tag and one of the digest; later reviews use the cache.
        assert await counted() == {"found": 2, "failed": 0}
        for _ in range(3):
            await client.post("/mutate?timeout=30s", json=review(missing))
        assert await counted() == {"found": 2, "failed": 1}
        # A preview has its own cache and uses no credentials.
        shown = await client.post(
            "/preview?namespace=ci", json=new(registry.host)["request"]["object"]
        )
        assert shown.status_code == 200, shown.text
        assert await counted() == {"found": 4, "failed": 1}


def test_buckets_of_the_duration_metric_reach_the_longest_look_up() -> None:
    longest = answer_seconds(b"timeout=1h") * IMAGE_LOOKUP_SHARE
    assert BUCKETS[-1] >= longest + NAMESPACE_LOOKUP_SECONDS
    usual = answer_seconds(b"timeout=10s") * IMAGE_LOOKUP_SHARE
    assert len([bucket for bucket in BUCKETS if 0.5 <= bucket <= usual]) >= 3
