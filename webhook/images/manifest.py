"""Manifests, indexes and image configurations, as far as an entrypoint needs them.

https://github.com/opencontainers/image-spec (`manifest.md`, `image-index.md`, `config.md`) and
Docker's Image Manifest V2, Schema 2, which has the same fields under other media types.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from webhook.core.images import ImageConfig
from webhook.images.errors import LookupFailedError

MOST_BYTES = 256 * 1024
"""Of a manifest or a configuration that are read, on the event loop. Real ones have some ten
kilobytes; to decode a hostile one of 1 MiB took 7 ms."""

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

_REFERENCE_TYPE = "vnd.docker.reference.type"
"""An annotation of BuildKit's entries that are no images but say something of one: attestations."""
_MOST_PLATFORMS = 16
MAX_ARGUMENTS = 1_000
"""Of Entrypoint and Cmd. Real ones have some ten; each takes more memory than its text."""


class Platform(msgspec.Struct, frozen=True):
    """`platform` of an entry of an index."""

    os: str = ""
    architecture: str = ""


class Descriptor(msgspec.Struct, frozen=True, rename="camel"):
    """What points to content: its digest, and how many bytes it has."""

    digest: str
    size: int = 0
    media_type: str = ""
    platform: Platform | None = None
    annotations: Mapping[str, str] | None = None
    artifact_type: str = ""


class _Document(msgspec.Struct, rename="camel"):
    media_type: str = ""
    config: Descriptor | None = None
    manifests: list[Descriptor] | None = None


class _Process(msgspec.Struct, rename="pascal"):
    entrypoint: list[str] | None = None
    cmd: list[str] | None = None


class _Config(msgspec.Struct):
    os: str = ""
    config: _Process | None = None


_decode_document = msgspec.json.Decoder(_Document).decode
_decode_config = msgspec.json.Decoder(_Config).decode
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def config_of(manifest: bytes) -> Descriptor | None:
    """Where a manifest's image configuration is; None for an index. Raises LookupFailedError."""
    document = _document(manifest)
    if document.manifests is not None:
        return None
    config = document.config
    if config is None:
        raise LookupFailedError("the manifest is of a kind that podsettle does not read")
    if config.media_type not in _CONFIGS:
        raise LookupFailedError("the manifest is not that of an image")
    return config


def platforms(index: bytes, architectures: frozenset[str]) -> tuple[Descriptor, ...]:
    """The entries of an index that a pod could be run from. Raises LookupFailedError.

    Those for Linux on one of the architectures, or on any where none is given. What BuildKit puts
    beside images (`unknown/unknown`, attestations) is no image.
    """
    fitting = {
        entry.digest: entry
        for entry in _document(index).manifests or ()
        if entry.platform is not None
        and entry.platform.os == "linux"
        and entry.platform.architecture not in ("", "unknown")
        and (not architectures or entry.platform.architecture in architectures)
        and _REFERENCE_TYPE not in (entry.annotations or {})
        and not entry.artifact_type
    }
    if not fitting:
        wanted = f"linux/{', '.join(sorted(architectures)) or 'any'}"
        raise LookupFailedError(f"the index has no image for {wanted}")
    if len(fitting) > _MOST_PLATFORMS:
        raise LookupFailedError(f"the index has {len(fitting)} images that would have to be read")
    return tuple(fitting.values())


def read_config(config: bytes) -> ImageConfig:
    """What an image configuration says of the process. Raises LookupFailedError."""
    try:
        found = _decode_config(config)
    except _UNREADABLE:
        raise LookupFailedError("the image's configuration is not one") from None
    if found.os not in ("", "linux"):
        raise LookupFailedError("the image is not for Linux")
    process = found.config or _Process()
    read = ImageConfig(tuple(process.entrypoint or ()), tuple(process.cmd or ()))
    if sum(map(len, read)) > MAX_ARGUMENTS:
        raise LookupFailedError(f"the image starts a command of more than {MAX_ARGUMENTS} words")
    return read


def _document(manifest: bytes) -> _Document:
    try:
        return _decode_document(manifest)
    except _UNREADABLE:
        raise LookupFailedError("what the registry sent is not a manifest") from None
