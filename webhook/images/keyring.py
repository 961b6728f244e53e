"""Credentials of image pull secrets, matched with images as the kubelet does it.

Source: kubernetes 1.36 `pkg/credentialprovider` (`keyring.go`, `config.go`, `secrets/secrets.go`).
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from webhook.core.images import MAX_REFERENCE_CHARACTERS
from webhook.core.pull_secrets import DOCKER_CFG, DOCKER_CONFIG_JSON, PullSecret
from webhook.core.types import glob_matches
from webhook.images.cache import bytes_of

_DOCKER_HUB = "index.docker.io"
_DOCKER_HUB_NAMES = ("docker.io", _DOCKER_HUB)

# Entries read from all pull secrets of a pod. Each is compared with each image of the pod. Real
# secrets have a few dozen.
MAX_REGISTRIES = 500
# A longer key matches no valid image, and would only take memory.
MAX_KEY_CHARACTERS = MAX_REFERENCE_CHARACTERS


class Credential(NamedTuple):
    """A registry user name and password."""

    username: str
    password: str

    def __repr__(self) -> str:
        return f"Credential({self.username!r}, …)"


class _Entry(msgspec.Struct):
    username: str = ""
    password: str = ""
    auth: str = ""


class _DockerConfig(msgspec.Struct):
    auths: dict[str, _Entry] = {}


_decode_config = msgspec.json.Decoder(_DockerConfig).decode
_decode_cfg = msgspec.json.Decoder(dict[str, _Entry]).decode


class _Location(NamedTuple):
    """The host, port and path of a credential's key or of an image's name."""

    labels: tuple[str, ...]
    """The DNS labels of the host. Each label of a credential's key may be a glob with `*`."""
    port: str
    path: str

    def covers(self, image: _Location) -> bool:
        """Return whether a credential with this location is valid for an image.

        The labels of the host must match, the ports must be equal, and the image's path must begin
        with this path. Paths are compared as text, as by the kubelet: `quay.io/core` covers
        `quay.io/coreos/etcd`.
        """
        return (
            self.port == image.port
            and len(self.labels) == len(image.labels)
            and image.path.startswith(self.path)
            and all(map(_label_matches, self.labels, image.labels))
        )


class _KeyringEntry(NamedTuple):
    """A credential and the images that it is for."""

    key: str
    """`host[:port][/path]`, with globs in the host."""
    location: _Location
    credential: Credential


@dataclass(frozen=True, slots=True)
class Keyring:
    """The credentials of a pod's pull secrets."""

    entries: tuple[_KeyringEntry, ...] = ()
    """Sorted: the most specific key first, and equal keys in the order of the secrets."""
    problems: tuple[str, ...] = ()
    """One message for each secret that could not be read."""
    bytes: int = field(default=0, compare=False)
    """The memory that the keyring takes."""

    def matching(self, name: str) -> tuple[Credential, ...]:
        """Return all credentials for `registry/repository`, the most specific key first.

        The kubelet tries them all in this order. The time is proportional to the number of entries
        and to the length of their keys, so call this in a thread.
        """
        image = _location(name)
        found = [e.credential for e in self.entries if image and e.location.covers(image)]
        if not found and name.partition("/")[0] in _DOCKER_HUB_NAMES:
            found = [e.credential for e in self.entries if e.key == _DOCKER_HUB]
        return tuple(dict.fromkeys(found))


def read_keyring(secrets: Iterable[PullSecret]) -> Keyring:
    """Return the credentials in pull secrets. Unreadable secrets are listed in `problems`.

    The time is proportional to the length of the secrets, so call this in a thread.
    """
    entries: list[_KeyringEntry] = []
    problems: list[str] = []
    for secret in secrets:
        try:
            read = [*islice(_entries(secret), MAX_REGISTRIES + 1 - len(entries))]
        except (ValueError, RecursionError) as error:
            # Do not include the error's text: it may quote the secret.
            why = secret.problem or f"cannot be read ({type(error).__name__})"
            problems.append(f"pull secret {secret.name!r} {why}" if secret.name else why)
            continue
        entries += read
        if len(entries) > MAX_REGISTRIES:
            del entries[MAX_REGISTRIES:]
            problems.append(f"pull secrets are read up to {MAX_REGISTRIES} registries")
            break
    # The sort is stable, so equal keys keep the order of the secrets.
    entries.sort(key=lambda entry: entry.key, reverse=True)
    content = tuple(entries), tuple(problems)
    return Keyring(*content, bytes_of(content))


def _entries(secret: PullSecret) -> Iterator[_KeyringEntry]:
    if secret.problem:
        raise ValueError(secret.problem)
    if secret.type == DOCKER_CONFIG_JSON:
        found = _decode_config(secret.content).auths
    elif secret.type == DOCKER_CFG:
        found = _decode_cfg(secret.content)
    else:
        # The kubelet ignores secrets of other types, too.
        return
    for text, entry in found.items():
        credential = _credential(entry)
        key = _key(text)
        location = None if key is None or len(key) > MAX_KEY_CHARACTERS else _location(key)
        if key is not None and location is not None and any(credential):
            yield _KeyringEntry(key, location, credential)


def _credential(entry: _Entry) -> Credential:
    if not entry.auth:
        return Credential(entry.username, entry.password)
    text = entry.auth.strip()
    padded = text + "=" * (-len(text) % 4)
    try:
        username, colon, password = b64decode(padded, validate=True).decode().partition(":")
    except binascii.Error as error:
        raise ValueError("auth is not base64") from error
    if not colon:
        raise ValueError("auth is not of the form username:password")
    return Credential(username, password)


def _key(url: str) -> str | None:
    """Return the key of a secret's entry: its URL without scheme and without `/v1/` or `/v2/`."""
    split = _split(url if url.startswith(("https://", "http://")) else f"https://{url}")
    if split is None:
        return None
    host, path = split
    if path.startswith(("/v2/", "/v1/")):
        path = path[3:]
    return host + (path if path != "/" else "")


def _split(url: str) -> tuple[str, str] | None:
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return parts.netloc.rpartition("@")[2], parts.path


def _location(name: str) -> _Location | None:
    """Return the location of a key or of an image, or None if it does not fit into a URL."""
    split = _split(f"https://{name}")
    if split is None:
        return None
    host, path = split
    host_name, colon, port = host.rpartition(":")
    if not colon or port.endswith("]"):
        host_name, port = host, ""
    elif host_name.startswith("["):
        host_name = host_name[1:].removesuffix("]")
    return _Location(tuple(host_name.split(".")), port, path)


def _label_matches(glob: str, label: str) -> bool:
    """Return whether a DNS label of a host matches a glob, as in Go's `filepath.Match`.

    Of its syntax, only `*` can appear in a host. A `?` begins a URL's query. `url.Parse` rejects
    backslashes, and accepts brackets only around an IPv6 address (Go 1.26). `net.SplitHostPort`
    removes these brackets if there is a port. Otherwise `filepath.Match` takes them for a character
    class, which matches no address.
    """
    return "[" not in glob and glob_matches(glob, label)
