"""Tests of responses of registries: malformed, too long, late or with a wrong digest."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
import trustme
from aiohttp import web

from tests.support.image_factories import APP, handler_of, unavailable_reason
from tests.support.image_fixtures import NewLookup
from tests.support.pull_secrets import Secrets, docker_config
from tests.support.registry import (
    OCI_MANIFEST,
    Image,
    digest_of,
    image_of,
    index_of,
    look_up,
    platform,
    query,
    serving,
    start_server,
)
from tests.support.waiting import TIMEOUT_SECONDS
from webhook.core.images import Unavailable
from webhook.images.lookup import ImageLookup, LookupLimits

MEBI = 1024 * 1024


@pytest.mark.parametrize("says_how_long", [True, False])
async def test_manifest_of_40_mebibytes_is_not_read_completely(
    says_how_long: bool, ca: trustme.CA, lookup: ImageLookup
) -> None:
    sent = 0
    total = 40 * MEBI

    async def handle(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        response.headers["Docker-Content-Digest"] = f"sha256:{'0' * 64}"
        if says_how_long:
            response.content_length = total
        await response.prepare(request)
        if request.method == "GET":
            while sent < total and request.transport and not request.transport.is_closing():
                await response.write(b" " * 65536)
                sent += 65536
                await asyncio.sleep(0)  # Let the loop notice that the client has stopped reading.
        return response

    async with start_server(ca, handle) as server:
        assert await unavailable_reason(lookup, server) in (
            "the registry would send more than 262144 bytes",
            "the registry sends more than 262144 bytes",
        )
    # The kernel's buffers accept some data before the connection is closed.
    assert sent < total / 2


async def test_configuration_above_the_size_limit_is_not_requested(
    ca: trustme.CA, image: Image, lookup: ImageLookup
) -> None:
    document = json.loads(image.manifest)
    document["config"]["size"] = 2 * MEBI
    large = Image(json.dumps(document).encode(), OCI_MANIFEST, image.blobs)
    async with start_server(ca, serving(large)) as server:
        assert await unavailable_reason(lookup, server) == (
            "the image's configuration has 2097152 bytes; the limit is 262144"
        )
        assert not [path for path in server.paths if "blobs" in path]


@pytest.mark.parametrize("kind", ["manifests", "blobs"])
async def test_content_with_another_digest_is_refused(
    kind: str, ca: trustme.CA, image: Image, lookup: ImageLookup
) -> None:
    serve = serving(image)

    async def handle(request: web.Request) -> web.StreamResponse:
        response = await serve(request)
        if request.method == "GET" and kind in request.path:
            assert isinstance(response, web.Response)
            assert isinstance(response.body, bytes)
            response.body = response.body.replace(b"linux", b"Linux").replace(b"{", b"{ ", 1)
        return response

    async with start_server(ca, handle) as server:
        expected = "the registry sent content that does not match its digest"
        assert await unavailable_reason(lookup, server) == expected


@pytest.mark.parametrize("status", [200, 405])
async def test_image_is_found_without_a_digest_header_or_the_method_head(
    status: int, ca: trustme.CA, image: Image, lookup: ImageLookup
) -> None:
    serve = serving(image)

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.method == "HEAD" and status != 200:
            return web.Response(status=status)
        response = await serve(request)
        response.headers.pop("Docker-Content-Digest", None)
        return response

    async with start_server(ca, handle) as server:
        assert await look_up(lookup, query(f"{server.host}/a:1")) == APP


NESTED = b"[" * 100_000
NO_IMAGE = json.dumps({"config": {"mediaType": "text/x", "digest": digest_of(b""), "size": 1}})


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        (b"", "the registry sent a document that is not a manifest"),
        (b"<html>", "the registry sent a document that is not a manifest"),
        (NESTED, "the registry sent a document that is not a manifest"),
        (b'{"manifests": 5}', "the registry sent a document that is not a manifest"),
        (b"{}", "podsettle does not support this kind of manifest"),
        (
            b'{"schemaVersion": 1, "fsLayers": []}',
            "podsettle does not support this kind of manifest",
        ),
        (NO_IMAGE.encode(), "the manifest does not describe a container image"),
        (b'{"manifests": []}', "the index has no image for linux/any"),
        (
            b'{"manifests": null, "config": null}',
            "podsettle does not support this kind of manifest",
        ),
    ],
)
async def test_malformed_or_unsupported_manifest_is_reported(
    manifest: bytes, expected: str, ca: trustme.CA, lookup: ImageLookup
) -> None:
    async with start_server(ca, serving(Image(manifest, OCI_MANIFEST, ()))) as server:
        assert (await unavailable_reason(lookup, server)).startswith(expected)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (b"x", "the image's configuration is invalid"),
        (b'{"config": {"Entrypoint": "sh -c"}}', "the image's configuration is invalid"),
        (b'{"os": "windows"}', "the image is not for Linux"),
    ],
)
async def test_malformed_or_foreign_configuration_is_reported(
    config: bytes, expected: str, ca: trustme.CA, image: Image, lookup: ImageLookup
) -> None:
    async with start_server(ca, serving(with_config(image, config))) as server:
        assert await unavailable_reason(lookup, server) == expected


def with_config(image: Image, config: bytes) -> Image:
    document = json.loads(image.manifest)
    document["config"] |= {"digest": digest_of(config), "size": len(config)}
    return Image(json.dumps(document).encode(), OCI_MANIFEST, (config,))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"config": {"Entrypoint": [""], "Cmd": ["/c"]}}, ((), ("/c",))),
        ({"config": {"Entrypoint": ["", "x"], "Cmd": None}}, (("", "x"), ())),
        ({"config": {"EntryPoint": ["/e"], "Cmd": ["x"]}}, (("/e",), ("x",))),
        ({"OS": "linux", "Config": {"entrypoint": ["/e"], "cmd": ["x"]}}, (("/e",), ("x",))),
        ({"config": {"Entrypoint": ["/e"]}, "history": '"cmd":' * 9_000}, (("/e",), ())),
    ],
)
async def test_command_is_that_which_runtimes_read(
    config: dict[str, Any],
    expected: tuple[tuple[str, ...], tuple[str, ...]],
    ca: trustme.CA,
    image: Image,
    lookup: ImageLookup,
) -> None:
    started = with_config(image, json.dumps(config).encode())
    async with start_server(ca, serving(started)) as server:
        assert await look_up(lookup, query(f"{server.host}/a:1", server.host)) == expected


async def test_nested_index_is_refused(ca: trustme.CA, image: Image, lookup: ImageLookup) -> None:
    inner = index_of((image, platform("amd64")))
    async with start_server(ca, serving(index_of((inner, platform("amd64"))), inner)) as server:
        assert await unavailable_reason(lookup, server) == "the index contains another index"


@pytest.mark.parametrize("digest", ["md5:x", "sha256:../../x", "", "sha256:" + "A" * 64])
async def test_invalid_digest_of_a_configuration_is_refused(
    digest: str, ca: trustme.CA, lookup: ImageLookup
) -> None:
    config = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest, "size": 1}
    image = Image(json.dumps({"config": config}).encode(), OCI_MANIFEST, ())
    async with start_server(ca, serving(image)) as server:
        assert await unavailable_reason(lookup, server) == (
            "the registry named a digest that cannot be verified"
        )
        assert not [path for path in server.paths if "blobs" in path]


@pytest.mark.parametrize("status", [429, 500, 503, 204])
async def test_unexpected_status_of_the_registry_is_reported(
    status: int, ca: trustme.CA, lookup: ImageLookup
) -> None:
    handler = handler_of(manifests=lambda: web.Response(status=status, text="a secret"))
    async with start_server(ca, handler) as server:
        assert await unavailable_reason(lookup, server) == f"the registry answers {status}"


async def test_hanging_request_ends_at_its_timeout(ca: trustme.CA, new_lookup: NewLookup) -> None:
    lookup = new_lookup(limits=LookupLimits(request_timeout=0.05))

    async def hang(_request: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    async with start_server(ca, hang) as server:
        assert await unavailable_reason(lookup, server) == (
            "'SERVER': podsettle gets no answer; its log has the cause"
        )


async def test_failed_platform_cancels_the_requests_for_the_others(
    ca: trustme.CA, image: Image, lookup: ImageLookup
) -> None:
    other = image_of(["/other"])
    index = index_of((image, platform("amd64")), (other, platform("arm64")))
    serve, arrived, stopped = serving(index), asyncio.Event(), asyncio.Event()

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.path.endswith(image.digest):
            await arrived.wait()
            return web.Response(status=500)
        if request.path.endswith(other.digest):
            arrived.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()
        return await serve(request)

    async with start_server(ca, handle) as server:
        assert await unavailable_reason(lookup, server) == "the registry answers 500"
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await stopped.wait()


@pytest.mark.parametrize("status", [403, 429, 500, 503])
@pytest.mark.parametrize("where", ["manifests", "token"])
async def test_next_credential_is_tried_after_any_refusal(
    status: int, where: str, ca: trustme.CA, image: Image, new_lookup: NewLookup
) -> None:
    serve = serving(image)

    async def handle(request: web.Request) -> web.StreamResponse:
        said = request.headers.get("Authorization", "")
        if "/token" in request.path:
            first = said == f"Basic {base64.b64encode(b'first:x').decode()}"
            if first and where == "token":
                return web.Response(status=status)
            return web.json_response({"token": "first" if first else "second"})
        if said == "Bearer second":
            return await serve(request)
        if said:
            return web.Response(status=status)
        value = f'Bearer realm="https://{server.host}/token"'
        return web.Response(status=401, headers={"WWW-Authenticate": value})

    async with start_server(ca, handle) as server:
        secrets = Secrets(
            docker_config({f"{server.host}/a": ("first", "x")}),
            docker_config({server.host: ("second", "x")}),
        )
        assert await look_up(new_lookup(secrets), query(f"{server.host}/a:1")) == APP


async def test_invalid_port_of_a_mirror_is_reported_with_the_image(lookup: ImageLookup) -> None:
    asked = query("quay.io/a:1", mirrors={"quay.io": "mirror.example:99999"})
    assert await look_up(lookup, asked) == Unavailable("quay.io/a:1: Port out of range 0-65535")
