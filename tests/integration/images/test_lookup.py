"""Tests of the look-up of an image's command: credentials, caches, deadlines, and what a pod gets.

What settles pods here is all of it but the HTTP server.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import trustme
from aiohttp import web

from tests.support.factories import Json, container, pod, policy, view
from tests.support.image_factories import APP, HELPER, image_policy, mutate_pod_with_lookup
from tests.support.image_fixtures import Clock, NewLookup
from tests.support.pull_secrets import Secrets, docker_config
from tests.support.registry import (
    PASSWORD,
    USER,
    Image,
    RunningRegistry,
    basic,
    htpasswd,
    image_of,
    look_up,
    query,
    serving,
    start_registry,
    start_server,
)
from tests.support.waiting import await_that, eventually
from webhook.core.images import ImageConfig, Unavailable
from webhook.core.pull_secrets import PullSecret
from webhook.core.reasons import Outcome
from webhook.images.lookup import ImageLookup, LookupLimits

OTHER = ImageConfig(("/other",), ())


def command(settled: Json, index: int = 0) -> list[str]:
    found: list[str] = settled["spec"]["containers"][index]["command"]
    return found


async def test_requests_go_to_the_mirror_of_a_registry(
    registry: RunningRegistry, image: Image, lookup: ImageLookup
) -> None:
    registry.push("library/debian", "12", image)
    registry.push("hub/library/debian", "12", image)
    for mirror in (registry.host, f"{registry.host}/hub"):
        for name in ("debian:12", "docker.io/library/debian:12", "index.docker.io/debian:12"):
            asked = query(name, "none.example", mirrors={"docker.io": mirror})
            assert await look_up(lookup, asked) == APP
    assert registry.requests("HEAD", "debian") == [
        "HEAD /v2/library/debian/manifests/12 200",
        "HEAD /v2/hub/library/debian/manifests/12 200",
    ]


@pytest.mark.needs("docker-registry")
async def test_every_matching_credential_is_tried(
    tmp_path: Path, ca: trustme.CA, image: Image, new_lookup: NewLookup
) -> None:
    with start_registry(tmp_path, ca, authorize=basic, auth=htpasswd(tmp_path)) as registry:
        registry.push("team/app", "1", image)
        secrets = Secrets(
            docker_config({f"{registry.host}/team/app": ("old", "gone")}, "first"),
            docker_config({f"{registry.host}/team": (USER, "wrong")}, "second"),
            docker_config({registry.host: (USER, PASSWORD)}, "third"),
        )
        assert await look_up(new_lookup(secrets), query(f"{registry.host}/team/app:1")) == APP


async def test_no_more_than_10_credentials_are_tried(ca: trustme.CA, new_lookup: NewLookup) -> None:
    """A tenant can store hundreds of them, for a registry of its own that refuses them."""

    async def refuse(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=401, headers={"WWW-Authenticate": 'Basic realm="x"'})

    async with start_server(ca, refuse) as server:
        paths = [f"{server.host}/{'a' * length}" for length in range(1, 101)]
        secret = docker_config({path: ("user", path) for path in paths})
        found = await look_up(new_lookup(Secrets(secret)), query(f"{server.host}/{'a' * 200}:1"))
    assert isinstance(found, Unavailable)
    assert found.why.endswith("the registry answers 401, then 90 further credentials are not tried")
    # One request without and one with each credential.
    assert len(server.seen) == 20


@pytest.mark.needs("docker-registry")
async def test_namespace_cannot_use_results_of_credentials_of_another_namespace(
    tmp_path: Path, ca: trustme.CA, image: Image, new_lookup: NewLookup
) -> None:
    with start_registry(tmp_path, ca, authorize=basic, auth=htpasswd(tmp_path)) as registry:
        registry.push("private", "1", image)
        secret = docker_config({registry.host: (USER, PASSWORD)})
        # The same characters as a user and a password of another length.
        similar = docker_config({registry.host: (USER + PASSWORD[:1], PASSWORD[1:])})
        lookup = new_lookup(Secrets(owners=(secret,), others=(similar,)))
        mine = query(f"{registry.host}/private:1", namespace="owners")
        theirs = query(f"{registry.host}/private:1", namespace="others")
        assert await look_up(lookup, mine) == APP
        assert isinstance(await look_up(lookup, theirs), Unavailable)
        assert await look_up(lookup, mine) == APP
        # The same holds for a look-up by digest.
        by_digest = f"{registry.host}/private@{image.digest}"
        assert await look_up(lookup, query(by_digest, namespace="owners")) == APP
        for namespace in ("others", "strangers"):
            answer = await look_up(lookup, query(by_digest, namespace=namespace))
            assert isinstance(answer, Unavailable)


async def test_pull_secrets_are_cached_until_their_ttl_ends(
    registry: RunningRegistry, image: Image, new_lookup: NewLookup, clock: Clock
) -> None:
    registry.push("read", "1", image)
    secrets = Secrets(docker_config({}))
    lookup = new_lookup(secrets)
    asked = query(f"{registry.host}/read:1", pull_secrets=("a", "b"))
    await asyncio.gather(*(look_up(lookup, asked) for _ in range(50)))
    assert await look_up(lookup, asked) == APP
    assert secrets.reads == [("ci", ("a", "b"), "default")]
    clock.now += 30.1
    await look_up(lookup, asked)
    assert len(secrets.reads) == 2


async def test_message_names_three_unreadable_secrets_and_counts_the_rest(
    registry: RunningRegistry, new_lookup: NewLookup
) -> None:
    lookup = new_lookup(Secrets(*(PullSecret(f"s{n}", problem="is broken") for n in range(300))))
    answer = await look_up(lookup, query(f"{registry.host}/none:1"))
    assert isinstance(answer, Unavailable)
    assert answer.why == (
        f"{registry.host}/none:1: the registry answers 404; pull secret 's0' is broken; "
        "pull secret 's1' is broken; pull secret 's2' is broken; "
        "and 297 more problems with pull secrets"
    )


async def test_cached_configurations_expire_and_are_bounded_in_number(
    registry: RunningRegistry,
    image: Image,
    new_lookup: NewLookup,
    clock: Clock,
) -> None:
    lookup = new_lookup(limits=LookupLimits(max_cache_entries=3))
    registry.push("moving", "1", image)
    asked = query(f"{registry.host}/moving:1")
    assert await look_up(lookup, asked) == APP
    registry.push("moving", "1", image_of(["/other"]))
    assert await look_up(lookup, asked) == APP
    clock.now += 60.1
    assert await look_up(lookup, asked) == OTHER
    # An unchanged tag needs only a HEAD request.
    clock.now += 60.1
    assert await look_up(lookup, asked) == OTHER
    heads = [line for line in registry.requests(path="moving") if line.startswith("HEAD")]
    assert (len(heads), len(registry.requests(path="moving"))) == (3, 3 + 2 + 2)
    for number in range(5):
        registry.push("moving", "n", image_of([f"/{number}"]))
        clock.now += 60.1
        assert await look_up(lookup, query(f"{registry.host}/moving:n")) == ((f"/{number}",), ())
    assert len(lookup.cache) == 3


async def test_cached_configurations_are_bounded_in_bytes(
    registry: RunningRegistry, lookup: ImageLookup
) -> None:
    words = ["x" * 8] * 999  # Such a command takes 65 KB of memory.
    count = 270
    asked = [query(f"{registry.host}/large:{number}") for number in range(count)]
    for number, each in enumerate(asked):
        registry.push("large", str(number), image_of(cmd=[str(number), *words]))
        assert await look_up(lookup, each) == ((), (str(number), *words))
    # The cache contains the last one. All of them exceed it, so the first is evicted.
    assert await look_up(lookup, asked[-1]) == ((), (str(count - 1), *words))
    assert await look_up(lookup, asked[0]) == ((), ("0", *words))
    # The registry writes its log a moment later than its answers.
    await_that(
        lambda: len(registry.requests(path="/large/")) >= count * 3 + 3, "they were asked for"
    )
    assert len(registry.requests(path="/large/")) == count * 3 + 3


@pytest.mark.parametrize(
    ("longest", "more", "limit"),
    [
        (["x"] * 1_000, ["x"] * 1_001, "1000 arguments"),
        (["/x", "x" * 8_190], ["/x", "x" * 8_191], "8192 characters"),
    ],
)
async def test_longer_command_is_refused(
    registry: RunningRegistry,
    lookup: ImageLookup,
    longest: list[str],
    more: list[str],
    limit: str,
) -> None:
    registry.push("words", "1", image_of(cmd=longest))
    registry.push("words", "2", image_of(cmd=more))
    assert await look_up(lookup, query(f"{registry.host}/words:1")) == ((), tuple(longest))
    refused = await look_up(lookup, query(f"{registry.host}/words:2"))
    assert f"the image's command has more than {limit}" in str(refused)


async def test_tag_latest_and_pull_policy_always_use_the_cache(
    registry: RunningRegistry, image: Image, lookup: ImageLookup
) -> None:
    registry.push("often", "latest", image)
    name = f"{registry.host}/often"
    seen = view(policy(**image_policy(registry.host)))
    for tag in ("", ":latest") * 10:
        always = container("main", image=name + tag, imagePullPolicy="Always")
        settled = await mutate_pod_with_lookup(
            pod(containers=[always], restartPolicy="Never"), seen, lookup
        )
        assert command(settled) == [*HELPER, "/bin/app", "--x"]
    assert len(registry.requests(path="often")) == 3


async def test_failure_is_cached_until_its_ttl_ends(
    registry: RunningRegistry, image: Image, lookup: ImageLookup, clock: Clock
) -> None:
    asked = query(f"{registry.host}/later:1")
    for _ in range(5):
        assert isinstance(await look_up(lookup, asked), Unavailable)
    assert len(registry.requests(path="later")) == 1
    registry.push("later", "1", image)
    clock.now += 30.1
    assert await look_up(lookup, asked) == APP


async def test_late_result_is_cached_for_the_next_pod(
    ca: trustme.CA, image: Image, lookup: ImageLookup
) -> None:
    """The pod is admitted unwrapped, and all steps of the look-up complete for the next pod."""
    go = asyncio.Event()
    serve = serving(image)

    async def hang(request: web.Request) -> web.StreamResponse:
        await go.wait()
        return await serve(request)

    async with start_server(ca, hang) as server:
        asked = query(f"{server.host}/slow:1")
        answer = await look_up(lookup, asked, seconds=0.01)
        assert answer == Unavailable("the registry did not answer within 0.01 s")
        go.set()
        await eventually(lambda: len(lookup.cache) == 2)
        assert len(server.seen) == 3
        assert await look_up(lookup, asked) == APP
        assert len(server.seen) == 3
        assert not lookup.detached


async def test_request_to_a_hanging_registry_ends_at_the_step_timeout(
    ca: trustme.CA, new_lookup: NewLookup
) -> None:
    lookup = new_lookup(limits=LookupLimits(step_timeout=3))
    stopped = asyncio.Event()

    async def hang(_request: web.Request) -> web.StreamResponse:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        raise AssertionError

    async with start_server(ca, hang) as server:
        asked = query(f"{server.host}/dead:1")
        for _ in range(3):
            assert await look_up(lookup, asked) == Unavailable(
                f"{server.host}/dead:1: the registry did not answer within 3 s"
            )
        assert len(server.seen) == 1


async def test_only_the_first_10_images_of_a_pod_are_looked_up(
    registry: RunningRegistry, lookup: ImageLookup
) -> None:
    queries = [query(f"{registry.host}/many/{n}:1") for n in range(30)]
    answers = await lookup.find(queries * 2, 30)
    said = Unavailable("no more than 10 images of a pod are looked up")
    assert [answers[each] == said for each in queries] == [False] * 10 + [True] * 20
    assert len(registry.requests(path="/many/")) == 10
    # A preview has no such limit: it looks up all images, one after the other.
    answers = await lookup.find(queries, 30, max_images=None)
    assert all("the registry answers 404" in str(answers[each]) for each in queries)


async def test_slow_registry_of_one_namespace_does_not_block_other_namespaces(
    ca: trustme.CA, registry: RunningRegistry, image: Image, lookup: ImageLookup
) -> None:
    registry.push("room", "1", image)
    go = asyncio.Event()

    async def hang(_request: web.Request) -> web.StreamResponse:
        await go.wait()
        return web.Response(status=500)

    async with start_server(ca, hang) as server:
        slow = [query(f"{server.host}/slow/{n}:1", namespace="slow") for n in range(100)]
        answers = [
            answer
            for first in range(0, 100, 10)
            for answer in (await lookup.find(slow[first : first + 10], 0.01)).values()
        ]
        assert answers[-1] == Unavailable(
            f"{server.host}/slow/99:1: 12 look-ups for namespace slow are under way"
        )
        assert await look_up(lookup, query(f"{registry.host}/room:1", namespace="quick")) == APP
        go.set()


async def test_failed_look_up_skips_only_its_container(
    registry: RunningRegistry, image: Image, lookup: ImageLookup
) -> None:
    registry.push("fine", "1", image)
    names = {
        "fine": f"{registry.host}/fine:1",
        "missing": f"{registry.host}/none:1",
        "foreign": "quay.io/a/b:1",
        "broken": "Not An Image",
    }
    new = pod(
        container("said", "/said"),
        containers=[container(name, image=image) for name, image in names.items()],
        restartPolicy="Never",
    )
    outcomes: list[Outcome] = []
    seen = view(policy(**image_policy(registry.host)))
    settled = await mutate_pod_with_lookup(new, seen, lookup, outcomes)
    assert [(o.container, o.reason) for o in outcomes[:2]] == [
        ("said", "Applied"),
        ("fine", "Applied"),
    ]
    assert {o.reason for o in outcomes[2:]} == {"ImageConfigUnavailable"}
    assert {o.container: o.message for o in outcomes[2:]} == {
        "missing": f"{names['missing']}: the registry answers 404",
        "foreign": "registry quay.io is not among the policy's imageConfig.registries",
        "broken": "'Not An Image' is not an image reference",
    }
    assert settled["spec"]["initContainers"][1]["command"] == [*HELPER, "/said"]
    assert command(settled) == [*HELPER, "/bin/app", "--x"]
    assert [c.get("command") for c in settled["spec"]["containers"][1:]] == [None] * 3
