"""Credentials out of image pull secrets, matched to images as the kubelet matches them.

kubernetes 1.36 `pkg/credentialprovider` (`keyring.go`, `config.go`, `secrets/secrets.go`).
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from webhook.core.pull_secrets import DOCKER_CFG, DOCKER_CONFIG_JSON, PullSecret

_DOCKER_HUB = "index.docker.io"
_DOCKER_HUB_NAMES = ("docker.io", _DOCKER_HUB)


class Credential(NamedTuple):
    """Who to say one is."""

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


@dataclass(frozen=True, slots=True)
class Keyring:
    """The credentials of some pull secrets."""

    entries: tuple[tuple[str, Credential], ...] = ()
    """Where each is for (`host[:port][/path]`, with `*` in the host), and the credential."""
    problems: tuple[str, ...] = ()
    """Secrets that could not be read, in words."""

    def matching(self, name: str) -> tuple[Credential, ...]:
        """Every credential for an image's name, `registry/repository`: most specific place first.

        The kubelet tries them all in this order.
        """
        # Sorting is stable: of one place, the earlier secret's comes first.
        ordered = sorted(self.entries, key=lambda entry: entry[0], reverse=True)
        places = dict.fromkeys(place for place, _ in ordered)
        found = [c for place in places if _matches(place, name) for c in self._at(place)]
        if not found and name.partition("/")[0] in _DOCKER_HUB_NAMES:
            found = list(self._at(_DOCKER_HUB))
        return tuple(dict.fromkeys(found))

    def _at(self, wanted: str) -> Iterator[Credential]:
        return (credential for place, credential in self.entries if place == wanted)


def read_keyring(secrets: Iterable[PullSecret]) -> Keyring:
    """The credentials in pull secrets. A secret that cannot be read is a problem and no more."""
    entries: list[tuple[str, Credential]] = []
    problems: list[str] = []
    for secret in secrets:
        try:
            entries += _entries(secret)
        except (ValueError, RecursionError) as error:
            # The error's text may quote the secret.
            why = secret.problem or f"cannot be read ({type(error).__name__})"
            problems.append(f"pull secret {secret.name!r} {why}" if secret.name else why)
    return Keyring(tuple(entries), tuple(problems))


def _entries(secret: PullSecret) -> Iterator[tuple[str, Credential]]:
    if secret.problem:
        raise ValueError(secret.problem)
    if secret.type == DOCKER_CONFIG_JSON:
        found = _decode_config(secret.content).auths
    elif secret.type == DOCKER_CFG:
        found = _decode_cfg(secret.content)
    else:
        # The kubelet passes over it as well.
        return
    for place, entry in found.items():
        credential = _credential(entry)
        key = _key(place)
        if key is not None and credential.username + credential.password:
            yield key, credential


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


def _matches(place: str, name: str) -> bool:
    """Whether a place covers an image: each label of its host, its port, and its path before.

    The path is compared as text: `quay.io/core` covers `quay.io/coreos/etcd`.
    """
    wanted, given = _split(f"https://{place}"), _split(f"https://{name}")
    if wanted is None or given is None:
        return False
    wanted_labels, wanted_port = _labels(wanted[0])
    labels, port = _labels(given[0])
    return (
        wanted_port == port
        and len(wanted_labels) == len(labels)
        and given[1].startswith(wanted[1])
        and all(map(_label_matches, wanted_labels, labels))
    )


def _labels(host: str) -> tuple[list[str], str]:
    name, colon, port = host.rpartition(":")
    if not colon or port.endswith("]"):
        name, port = host, ""
    return name.split("."), port


def _label_matches(glob: str, label: str) -> bool:
    pattern = ".*".join(map(re.escape, glob.split("*")))
    return re.fullmatch(pattern, label, re.DOTALL) is not None
