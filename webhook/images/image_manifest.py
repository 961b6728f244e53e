"""Parsers for manifests, indexes and image configurations.

They decode only the fields that lead to an image's Entrypoint and Cmd. Sources:

https://github.com/opencontainers/image-spec (`manifest.md`, `image-index.md`, `config.md`) and
Docker's Image Manifest V2, Schema 2, which has the same fields under other media types.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain
from typing import NamedTuple

import msgspec

from webhook.core.images import ImageConfig
from webhook.images.errors import LookupFailedError, NotAnImageError
from webhook.images.go_json import with_usual_names

# The largest manifest or configuration that is read. Both are decoded on the event loop, where a
# hostile document of 1 MiB took 7 ms. Real ones have about ten kilobytes.
MAX_DOCUMENT_BYTES = 256 * 1024

_INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
ACCEPT = ", ".join((*_INDEXES, *_MANIFESTS))
_CONFIGS = (
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
)
# Docker wrote it until 2016 (docker/distribution#1622).
_LEGACY_CONFIG = "application/octet-stream"

# BuildKit sets this annotation on index entries that are attestations of an image, not images.
_REFERENCE_TYPE = "vnd.docker.reference.type"
# Each entry takes up to two requests: one for its manifest, and one for its configuration.
_MAX_PLATFORMS = 16
# The number of arguments in Entrypoint and Cmd. Real images have about ten. An argument takes more
# memory than its text.
MAX_ARGUMENTS = 1_000
# The number of characters in them. A patch copies them into up to 500 containers of a small pod.
# 240 KB made an answer of 321 MB in 5 s. Real images have less than a thousand characters.
MAX_COMMAND_CHARACTERS = 8_192


class Platform(msgspec.Struct, frozen=True):
    """The platform in an entry of an index. Go reads a null as an empty text."""

    os: str | None = ""
    architecture: str | None = ""


_ARCHITECTURES = {
    "x86_64": "amd64",
    "x86-64": "amd64",
    "i386": "386",
    "aarch64": "arm64",
    "armhf": "arm",
    "armel": "arm",
}
"""Other names of architectures, which containerd knows (containerd/platforms `database.go`)."""
_OF_64_BITS = {"386": "amd64", "arm": "arm64"}
"""The architectures whose images containerd also starts on nodes of another one, if there is none
for theirs (containerd/platforms `compare.go`). CRI-O does not (containers/image
`internal/pkg/platform`): there the pod does not start, so its command does not matter."""


def _normalized(os: str | None, architecture: str | None) -> tuple[str, str]:
    """Return a platform as containerd on Linux reads it. CRI-O reads it literally."""
    lower = (architecture or "").lower()
    return (os or "linux").lower(), _ARCHITECTURES.get(lower, lower)


class Descriptor(msgspec.Struct, frozen=True, rename="camel"):
    """A reference to content: its digest and its size in bytes."""

    digest: str
    size: int = 0
    media_type: str | None = ""
    platform: Platform | None = None
    annotations: Mapping[str, str | None] | None = None
    artifact_type: str | None = ""


class IndexEntries(NamedTuple):
    """The entries of an index that the nodes of a pod could pull."""

    with_platform: Collection[tuple[str, str]]
    """The digest and the architecture of each. Some indexes name one image under several."""
    without_platform: Collection[str]
    """The digests of entries whose configuration says their platform. Empty if no node would pull
    one."""
    architectures: frozenset[str]
    """The architectures of the nodes. Empty if one of them is unknown."""

    def pull_without_platform(self, architecture: str) -> bool:
        """Return whether a node could pull an entry without a platform.

        `architecture` is that of the entry's configuration, or empty if that names none. Runtimes
        prefer an entry with the platform of the node.
        """
        named = {of_entry for _, of_entry in self.with_platform}
        if not architecture or not self.architectures:
            return architecture not in named
        fits = {architecture, _OF_64_BITS.get(architecture)}
        return not fits.isdisjoint(self.architectures - named)

    @property
    def no_match(self) -> str:
        """The message for an index without an image for the nodes."""
        return f"the index has no image for linux/{', '.join(sorted(self.architectures)) or 'any'}"


class ImageDocument(NamedTuple):
    """An image's configuration."""

    architecture: str
    """Empty if the configuration names none."""
    config: ImageConfig


class _Document(msgspec.Struct, rename="camel"):
    media_type: str | None = None
    config: Descriptor | None = None
    manifests: list[Descriptor] | None = None


class _Process(msgspec.Struct, rename="pascal"):
    entrypoint: list[str] | None = None
    cmd: list[str] | None = None


class _Config(msgspec.Struct):
    os: str | None = None
    architecture: str | None = None
    config: _Process | None = None


_decode_document = msgspec.json.Decoder(_Document).decode
_decode_config = msgspec.json.Decoder(_Config).decode
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def config_descriptor(manifest: bytes) -> Descriptor | None:
    """Return the descriptor of a manifest's image configuration, or None for an index.

    Raises LookupFailedError if the document is not the manifest of an image.
    """
    document = _decode_manifest(manifest)
    if document.manifests is not None:
        return None
    config = document.config
    if config is None:
        raise LookupFailedError("podsettle does not support this kind of manifest")
    is_legacy = (document.media_type, config.media_type) == (_MANIFESTS[1], _LEGACY_CONFIG)
    if config.media_type not in _CONFIGS and not is_legacy:
        raise NotAnImageError("the manifest does not describe a container image")
    return config


def index_entries(index: bytes, architectures: frozenset[str]) -> IndexEntries:
    """Return the entries of an index that the node of a pod could pull.

    They are the images for Linux on one of the architectures, or else on that of 32 bits, or on any
    architecture if none is given. Attestations of BuildKit (`unknown/unknown`) are omitted. An
    entry may have no platform. Runtimes take such an entry if no other one is for the node's
    platform (containerd `core/images/image.go`, containers/image
    `internal/manifest/oci_index.go`). Raises LookupFailedError if there are too many.
    """
    with_platform: dict[tuple[str, str], None] = {}
    without_platform: dict[str, None] = {}
    for entry in _decode_manifest(index).manifests or ():
        is_artifact = (entry.artifact_type or "") not in ("", *_CONFIGS)
        if _REFERENCE_TYPE in (entry.annotations or {}) or is_artifact:
            continue
        if entry.platform is None:
            without_platform[entry.digest] = None
            continue
        os, architecture = _normalized(entry.platform.os, entry.platform.architecture)
        if os == "linux" and architecture not in ("", "unknown"):
            with_platform[entry.digest, architecture] = None
    if architectures:
        lacking = architectures - {each for _, each in with_platform}
        wanted = architectures | {each for each, of_64 in _OF_64_BITS.items() if of_64 in lacking}
        with_platform = {each: None for each in with_platform if each[1] in wanted}
        if not lacking:
            without_platform.clear()
    count = len(with_platform) + len(without_platform)
    if count > _MAX_PLATFORMS:
        raise LookupFailedError(
            f"the index has {count} matching images; the limit is {_MAX_PLATFORMS}"
        )
    return IndexEntries(with_platform, without_platform, architectures)


def parse_config(config: bytes) -> ImageDocument:
    """Return the architecture, Entrypoint and Cmd of an image configuration.

    Raises LookupFailedError.
    """
    try:
        document = _decode_config(with_usual_names(config))
    except _UNREADABLE:
        raise LookupFailedError("the image's configuration is invalid") from None
    os, architecture = _normalized(document.os, document.architecture)
    if os != "linux":
        raise NotAnImageError("the image is not for Linux")
    process = document.config or _Process()
    entrypoint = process.entrypoint or ()
    # `ENTRYPOINT [""]` removes the Entrypoint of a base image (containerd `WithProcessArgs`).
    result = ImageConfig(() if entrypoint == [""] else tuple(entrypoint), tuple(process.cmd or ()))
    if sum(map(len, result)) > MAX_ARGUMENTS:
        raise LookupFailedError(f"the image's command has more than {MAX_ARGUMENTS} arguments")
    if sum(map(len, chain(*result))) > MAX_COMMAND_CHARACTERS:
        raise LookupFailedError(
            f"the image's command has more than {MAX_COMMAND_CHARACTERS} characters"
        )
    return ImageDocument(architecture, result)


def _decode_manifest(manifest: bytes) -> _Document:
    """Decode a manifest or an index. Raises LookupFailedError."""
    try:
        return _decode_document(manifest)
    except _UNREADABLE:
        raise LookupFailedError("the registry sent a document that is not a manifest") from None
