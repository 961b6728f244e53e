"""Look-ups in indexes, whose entries may name no platform: the OCI specification allows it."""

from __future__ import annotations

from typing import Any

import pytest
import trustme

from tests.support.image_factories import unavailable_reason
from tests.support.registry import (
    DOCKER_MANIFEST,
    OCI_CONFIG,
    OCI_MANIFEST,
    Image,
    image_of,
    index_of,
    look_up,
    platform,
    query,
    serving,
    start_server,
)
from webhook.core.images import ImageConfig, Unavailable
from webhook.images.lookup import ImageLookup

DIFFER = "the image starts different commands on the platforms that the pod could run on"
NO_PLATFORM: dict[str, Any] = {}


AMD64, ARM64 = image_of(["/amd"]), image_of(["/arm"], architecture="arm64")
I386, ARM = image_of(["/i386"], architecture="386"), image_of(["/arm32"], architecture="arm")
WINDOWS = image_of(["/win"], os="windows")
ARTIFACT = image_of(["/none"], architecture="", config_type="application/vnd.example.config+json")
NAMELESS = image_of(["/any"], architecture="")
LEGACY = image_of(["/old"], config_type="application/octet-stream", media_type=DOCKER_MANIFEST)
AGREEING = [(image_of(["/app"], architecture=each), platform(each)) for each in ("amd64", "arm64")]
DIFFERING = [*AGREEING, (image_of(["/other"], architecture="s390x"), platform("s390x"))]


ATTESTATION = image_of(["/attestation"])
REFERENCE = {"vnd.docker.reference.type": "attestation-manifest"}
ATTESTED = [
    (WINDOWS, platform("amd64", "windows")),
    (ATTESTATION, {**platform("unknown", "unknown"), "annotations": REFERENCE}),
    (ATTESTATION, {**platform("amd64"), "annotations": {"vnd.docker.reference.type": "x"}}),
    (ARM64, platform("arm64")),
    (AMD64, platform("amd64")),
]


@pytest.mark.parametrize(
    ("entries", "architectures", "expected"),
    [
        (ATTESTED, ["amd64"], "/amd"),
        (ATTESTED, ["arm64"], "/arm"),
        (AGREEING, [], "/app"),
        (AGREEING, ["arm64"], "/app"),
        (DIFFERING, ["arm64"], "/app"),
        (DIFFERING, ["amd64", "arm64"], "/app"),
        (DIFFERING, ["s390x"], "/other"),
        (DIFFERING, ["s390x", "ppc64le"], "/other"),
        (DIFFERING, [], DIFFER),
        (DIFFERING, ["arm64", "s390x"], DIFFER),
        (DIFFERING, ["ppc64le"], "the index has no image for linux/ppc64le"),
        ([(AMD64, NO_PLATFORM)], ["amd64"], "/amd"),
        ([(AMD64, NO_PLATFORM)], [], "/amd"),
        ([(AMD64, {"platform": None})], ["amd64"], "/amd"),
        # Go reads a null as an empty value.
        ([(AMD64, {"platform": {"os": None, "architecture": "amd64"}})], ["amd64"], "/amd"),
        ([(AMD64, {"artifactType": None, "annotations": {"a": None}})], ["amd64"], "/amd"),
        ([(AMD64, {"mediaType": None})], ["amd64"], "/amd"),
        ([(ARM64, NO_PLATFORM), (AMD64, NO_PLATFORM)], ["amd64"], "/amd"),
        ([(AMD64, NO_PLATFORM), (ARM64, NO_PLATFORM)], ["arm64"], "/arm"),
        ([(WINDOWS, NO_PLATFORM), (AMD64, NO_PLATFORM)], ["amd64"], "/amd"),
        ([(ARTIFACT, NO_PLATFORM), (AMD64, NO_PLATFORM)], ["amd64"], "/amd"),
        ([(NAMELESS, NO_PLATFORM)], ["s390x"], "/any"),
        # One image for several platforms.
        ([(AMD64, platform(each)) for each in ("amd64", "arm64")], ["amd64"], "/amd"),
        ([(AMD64, platform(each)) for each in ("amd64", "arm64")], ["arm64", "amd64"], "/amd"),
        # An image may name its kind twice (image-spec `descriptor.md`).
        ([(AMD64, {**platform("amd64"), "artifactType": OCI_CONFIG})], ["amd64"], "/amd"),
        ([(LEGACY, platform("amd64"))], ["amd64"], "/old"),
        # containerd knows other names, and takes an entry without a system for one of its own.
        ([(AMD64, platform("x86_64"))], ["amd64"], "/amd"),
        ([(ARM64, {"platform": {"os": "Linux", "architecture": "aarch64"}})], ["arm64"], "/arm"),
        ([(AMD64, {"platform": {"architecture": "amd64"}})], ["amd64"], "/amd"),
        ([(image_of(["/x"], architecture="aarch64", os="Linux"), NO_PLATFORM)], ["arm64"], "/x"),
        # A runtime prefers the entry that names the platform of its node.
        ([(NAMELESS, NO_PLATFORM), (AMD64, platform("amd64"))], ["amd64"], "/amd"),
        ([(image_of(["/x"]), NO_PLATFORM), (AMD64, platform("amd64"))], [], "/amd"),
        ([(AMD64, platform("amd64")), (ARM64, NO_PLATFORM)], ["arm64"], "/arm"),
        ([(AMD64, platform("amd64")), (ARM64, NO_PLATFORM)], ["amd64"], "/amd"),
        ([(AMD64, platform("amd64")), (ARTIFACT, NO_PLATFORM)], [], "/amd"),
        # The manifests are not in the registry, so a request for one of them would fail.
        (
            [
                (AMD64, platform("amd64")),
                (Image(b"a", OCI_MANIFEST, ()), {"artifactType": "text/x"}),
                (Image(b"b", OCI_MANIFEST, ()), {"annotations": {"vnd.docker.reference.type": ""}}),
            ],
            [],
            "/amd",
        ),
        # A node without an image of its own starts that of its architecture of 32 bits.
        ([(I386, platform("386"))], ["amd64"], "/i386"),
        ([(I386, platform("i386"))], ["amd64"], "/i386"),
        ([(I386, NO_PLATFORM)], ["amd64"], "/i386"),
        ([(ARM, platform("arm"))], ["arm64"], "/arm32"),
        ([(ARM, platform("armhf")), (I386, platform("386"))], ["arm64"], "/arm32"),
        ([(I386, platform("386")), (AMD64, platform("amd64"))], ["amd64"], "/amd"),
        ([(I386, NO_PLATFORM), (AMD64, platform("amd64"))], ["amd64"], "/amd"),
        # CRI-O takes the entry without a platform.
        ([(I386, platform("386")), (AMD64, NO_PLATFORM)], ["amd64"], DIFFER),
        ([(AMD64, platform("amd64")), (ARM, platform("arm"))], ["amd64", "arm64"], DIFFER),
        ([(I386, platform("386"))], ["arm64"], "the index has no image for linux/arm64"),
        ([(AMD64, platform("amd64"))], ["386"], "the index has no image for linux/386"),
        ([(AMD64, NO_PLATFORM)], ["arm64"], "the index has no image for linux/arm64"),
        ([(WINDOWS, NO_PLATFORM)], ["amd64"], "the index has no image for linux/amd64"),
        ([(ARTIFACT, NO_PLATFORM)], [], "the index has no image for linux/any"),
        ([(AMD64, NO_PLATFORM), (ARM64, NO_PLATFORM)], [], DIFFER),
        ([(AMD64, NO_PLATFORM), (ARM64, NO_PLATFORM)], ["amd64", "arm64"], DIFFER),
        ([(AMD64, platform("amd64")), (ARM64, NO_PLATFORM)], [], DIFFER),
        ([(AMD64, platform("amd64")), (NAMELESS, NO_PLATFORM)], ["amd64", "arm64"], DIFFER),
    ],
)
async def test_index_gives_the_one_command_that_the_nodes_would_start(
    entries: list[tuple[Image, dict[str, Any]]],
    architectures: list[str],
    expected: str,
    ca: trustme.CA,
    lookup: ImageLookup,
) -> None:
    handler = serving(index_of(*entries), *(image for image, _ in entries))
    async with start_server(ca, handler) as server:
        name = f"{server.host}/a:1"
        found = await look_up(lookup, query(name, architectures=frozenset(architectures)))
        is_command = expected.startswith("/")
        assert found == (
            ImageConfig((expected,), ()) if is_command else Unavailable(f"{name}: {expected}")
        )


async def test_more_than_16_entries_with_and_without_a_platform_are_not_requested(
    ca: trustme.CA, lookup: ImageLookup
) -> None:
    entries = [
        (
            image_of([f"/{number}"], architecture=""),
            platform(f"cpu{number}") if number < 8 else NO_PLATFORM,
        )
        for number in range(17)
    ]
    async with start_server(ca, serving(index_of(*entries))) as server:
        assert await unavailable_reason(lookup, server) == (
            "the index has 17 matching images; the limit is 16"
        )
        assert server.paths == ["HEAD /v2/a/manifests/1", server.paths[1]]
