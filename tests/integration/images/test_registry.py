"""Look-ups at a real registry: TLS, basic authentication, media types; and a token server."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import trustme
from aiohttp import web

from tests.support.image_factories import APP
from tests.support.image_fixtures import NewLookup
from tests.support.pull_secrets import Secrets, docker_config
from tests.support.registry import (
    DOCKER_CONFIG,
    DOCKER_LIST,
    DOCKER_MANIFEST,
    PASSWORD,
    USER,
    Image,
    RunningRegistry,
    basic,
    htpasswd,
    image_of,
    index_of,
    look_up,
    platform,
    query,
    serving,
    start_registry,
    start_server,
)
from webhook.core.images import ImageConfig, Unavailable
from webhook.images.lookup import ImageLookup


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, ca: trustme.CA) -> Iterator[RunningRegistry]:
    """A registry that requires basic authentication."""
    home = tmp_path_factory.mktemp("guarded")
    with start_registry(home, ca, authorize=basic, auth=htpasswd(home)) as running:
        yield running


async def test_tag_is_resolved_in_three_requests_over_tls(
    registry: RunningRegistry, image: Image, lookup: ImageLookup
) -> None:
    registry.push("team/app", "1", image)
    assert await look_up(lookup, query(f"{registry.host}/team/app:1")) == APP
    assert registry.requests(path="team/app") == [
        "HEAD /v2/team/app/manifests/1 200",
        f"GET /v2/team/app/manifests/{image.digest} 200",
        f"GET /v2/team/app/blobs/{json.loads(image.manifest)['config']['digest']} 200",
    ]


async def test_digest_is_used_without_resolving_the_tag(
    registry: RunningRegistry, image: Image, lookup: ImageLookup
) -> None:
    digest = registry.push("by-digest", "1", image)
    # A tag beside a digest is ignored, even if the tag does not exist.
    assert await look_up(lookup, query(f"{registry.host}/by-digest:none@{digest}")) == APP
    assert registry.requests("HEAD", "by-digest") == []


async def test_media_types_of_docker_are_supported(
    registry: RunningRegistry, lookup: ImageLookup
) -> None:
    made = image_of(["/app"], media_type=DOCKER_MANIFEST, config_type=DOCKER_CONFIG)
    registry.push("docker", "1", made)
    registry.push(
        "docker", "list", made, index_of((made, platform("amd64")), media_type=DOCKER_LIST)
    )
    assert await look_up(lookup, query(f"{registry.host}/docker:1")) == (("/app",), ())
    assert await look_up(lookup, query(f"{registry.host}/docker:list")) == (("/app",), ())


async def test_image_without_an_entrypoint_has_an_empty_entrypoint(
    registry: RunningRegistry, lookup: ImageLookup
) -> None:
    registry.push("bare", "1", image_of(cmd=["sh"]))
    registry.push("empty", "1", image_of())
    assert await look_up(lookup, query(f"{registry.host}/bare:1")) == ImageConfig((), ("sh",))
    assert await look_up(lookup, query(f"{registry.host}/empty:1")) == ImageConfig((), ())


async def test_certificate_of_an_unknown_ca_is_refused(
    registry: RunningRegistry, image: Image, caplog: pytest.LogCaptureFixture
) -> None:
    registry.push("tls", "1", image)
    lookup = ImageLookup()
    answer = await look_up(lookup, query(f"{registry.host}/tls:1"))
    await lookup.aclose()
    assert isinstance(answer, Unavailable)
    assert "TLS: CERTIFICATE_VERIFY_FAILED" in caplog.text
    assert registry.requests(path="tls") == []


# Authentication.


@pytest.mark.needs("docker-registry")
async def test_basic_authentication_needs_the_credentials_of_the_registry(
    guarded: RunningRegistry, image: Image, new_lookup: NewLookup
) -> None:
    guarded.push("basic", "1", image)
    asked = query(f"{guarded.host}/basic:1")
    refused = await look_up(new_lookup(), asked)
    assert refused == Unavailable(f"{guarded.host}/basic:1: the registry answers 401")
    secrets = Secrets(docker_config({guarded.host: (USER, PASSWORD)}))
    assert await look_up(new_lookup(secrets), asked) == APP
    wrong = Secrets(docker_config({guarded.host: (USER, "wrong")}))
    assert await look_up(new_lookup(wrong), asked) == refused
    elsewhere = Secrets(docker_config({"quay.io": (USER, PASSWORD)}))
    assert await look_up(new_lookup(elsewhere), asked) == refused


async def test_token_authentication_needs_an_allowed_token_server(
    ca: trustme.CA, image: Image, new_lookup: NewLookup
) -> None:
    serve, asked = serving(image), list[dict[str, str]]()

    async def issue_token(request: web.Request) -> web.StreamResponse:
        asked.append(dict(request.query))
        if request.headers.get("Authorization") != basic("")["Authorization"]:
            return web.Response(status=401)
        return web.json_response({"token": None, "access_token": "good"})

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") == "Bearer good":
            return await serve(request)
        scope = "repository:secret/app:pull"
        value = f'Bearer realm="https://{tokens.host}/token",service="registry",scope="{scope}"'
        return web.Response(status=401, headers={"WWW-Authenticate": value})

    async with start_server(ca, issue_token) as tokens, start_server(ca, answer) as registry:
        name = f"{registry.host}/secret/app:1"
        secrets = Secrets(docker_config({f"{registry.host}/secret": (USER, PASSWORD)}))
        allowed = query(name, registry.host, tokens.host)
        assert await look_up(new_lookup(secrets), allowed) == APP
        assert asked == [{"service": "registry", "scope": "repository:secret/app:pull"}]
        anonymous = await look_up(new_lookup(), allowed)
        assert anonymous == Unavailable(f"{name}: the registry's token server answers 401")
        # The token server has a loopback address that the policy does not list.
        unseen = await look_up(new_lookup(secrets), query(name))
        assert unseen == Unavailable(
            f"{name}: refusing to connect to '{tokens.host}': "
            "loopback, link-local or metadata address"
        )
        assert len(asked) == 2
