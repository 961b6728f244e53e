"""Credentials out of image pull secrets, matched to images as the kubelet matches them.

kubernetes 1.36 `pkg/credentialprovider` (`keyring.go`, `config.go`, `secrets/secrets.go`).
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

MAX_REGISTRIES = 500
"""Entries of all pull secrets of a pod that are read. Real ones have a few dozen; each is compared
with each image of the pod."""
MAX_KEY_CHARACTERS = MAX_REFERENCE_CHARACTERS
"""Of what a credential is for. A longer one covers no image, but takes memory as one."""


class Credential(NamedTuple):
    """A user name and password of a registry."""

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


class _Place(NamedTuple):
    """What a credential is for, or an image's own place, as the kubelet compares the two."""

    labels: tuple[str, ...]
    """Of the host; each may be a glob with `*`."""
    port: str
    path: str

    def covers(self, image: _Place) -> bool:
        """Whether each label of the host fits, the port is the same, and the path is a prefix.

        Paths are compared as text: `quay.io/core` covers `quay.io/coreos/etcd`.
        """
        return (
            self.port == image.port
            and len(self.labels) == len(image.labels)
            and image.path.startswith(self.path)
            and all(map(_label_matches, self.labels, image.labels))
        )


class _Holding(NamedTuple):
    """One credential and what it is for."""

    key: str
    """`host[:port][/path]`, with `*` in the host."""
    place: _Place
    credential: Credential


@dataclass(frozen=True, slots=True)
class Keyring:
    """The credentials of some pull secrets."""

    holdings: tuple[_Holding, ...] = ()
    """The most specific place first; for one place in the order of the secrets."""
    problems: tuple[str, ...] = ()
    """Secrets that could not be read, in words."""
    bytes: int = field(default=0, compare=False)
    """What it takes in memory."""

    def matching(self, name: str) -> tuple[Credential, ...]:
        """Every credential for an image's name, `registry/repository`: most specific place first.

        The kubelet tries them all in this order. Takes time in proportion to the holdings and to
        the length of their places: call it off the event loop.
        """
        image = _place(name)
        found = [h.credential for h in self.holdings if image and h.place.covers(image)]
        if not found and name.partition("/")[0] in _DOCKER_HUB_NAMES:
            found = [h.credential for h in self.holdings if h.key == _DOCKER_HUB]
        return tuple(dict.fromkeys(found))


def read_keyring(secrets: Iterable[PullSecret]) -> Keyring:
    """The credentials in pull secrets. A secret that cannot be read is a problem and no more.

    Takes time in proportion to the secrets' lengths: call it off the event loop.
    """
    holdings: list[_Holding] = []
    problems: list[str] = []
    for secret in secrets:
        try:
            held = [*islice(_holdings(secret), MAX_REGISTRIES + 1 - len(holdings))]
        except (ValueError, RecursionError) as error:
            # The error's text may quote the secret.
            why = secret.problem or f"cannot be read ({type(error).__name__})"
            problems.append(f"pull secret {secret.name!r} {why}" if secret.name else why)
            continue
        holdings += held
        if len(holdings) > MAX_REGISTRIES:
            del holdings[MAX_REGISTRIES:]
            problems.append(f"pull secrets are read up to {MAX_REGISTRIES} registries")
            break
    # Sorting is stable: for one place, the earlier secret's comes first.
    holdings.sort(key=lambda holding: holding.key, reverse=True)
    kept = tuple(holdings), tuple(problems)
    return Keyring(*kept, bytes_of(kept))


def _holdings(secret: PullSecret) -> Iterator[_Holding]:
    if secret.problem:
        raise ValueError(secret.problem)
    if secret.type == DOCKER_CONFIG_JSON:
        found = _decode_config(secret.content).auths
    elif secret.type == DOCKER_CFG:
        found = _decode_cfg(secret.content)
    else:
        # The kubelet passes over it as well.
        return
    for text, entry in found.items():
        credential = _credential(entry)
        key = _key(text)
        place = None if key is None or len(key) > MAX_KEY_CHARACTERS else _place(key)
        if key is not None and place is not None and any(credential):
            yield _Holding(key, place, credential)


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


def _key(place: str) -> str | None:
    """A place as it is compared: without scheme, and without the path of the registry's API."""
    split = _split(place if place.startswith(("https://", "http://")) else f"https://{place}")
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


def _place(name: str) -> _Place | None:
    """The place of a key or of an image; None where no URL could name it."""
    split = _split(f"https://{name}")
    if split is None:
        return None
    host, path = split
    host_name, colon, port = host.rpartition(":")
    if not colon or port.endswith("]"):
        host_name, port = host, ""
    elif host_name.startswith("["):
        host_name = host_name[1:].removesuffix("]")
    return _Place(tuple(host_name.split(".")), port, path)


def _label_matches(glob: str, label: str) -> bool:
    """Whether a label of a host matches as in the kubelet, by Go's `filepath.Match`.

    Of its syntax only `*` can stand in a host: a `?` begins a URL's query, and `url.Parse` takes
    no backslash, and brackets only around an IPv6 address (Go 1.26). `net.SplitHostPort` takes
    these away where there is a port; without one they make a class of characters, which matches
    no address.
    """
    return "[" not in glob and glob_matches(glob, label)
