"""Selects credentials from image pull secrets for an image, as the kubelet does.

Source: kubernetes 1.36 `pkg/credentialprovider` (`keyring.go`, `config.go`, `secrets/secrets.go`).
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from webhook.core.globs import glob_matches
from webhook.core.images import MAX_REFERENCE_CHARACTERS
from webhook.core.pull_secrets import DOCKER_CFG, DOCKER_CONFIG_JSON, PullSecret
from webhook.images.go_json import with_usual_names
from webhook.single_flight import bytes_of

_DOCKER_HUB = "index.docker.io"
_DOCKER_HUB_NAMES = ("docker.io", _DOCKER_HUB)

# The maximum of entries from all pull secrets of a pod, because each is compared with each image of
# the pod. Real secrets have a few dozen entries.
MAX_REGISTRIES = 500
# A longer key cannot match a valid image and would waste memory.
MAX_KEY_CHARACTERS = MAX_REFERENCE_CHARACTERS


class Credential(NamedTuple):
    """A registry user name and password."""

    username: str
    password: str

    @property
    def authorization(self) -> str:
        """The Authorization header for Basic authentication (RFC 7617), in UTF-8."""
        return f"Basic {b64encode(f'{self.username}:{self.password}'.encode()).decode()}"

    def __repr__(self) -> str:
        return f"Credential({self.username!r}, …)"


class _Entry(msgspec.Struct):
    username: str | None = None
    password: str | None = None
    auth: str | None = None


class _DockerConfig(msgspec.Struct):
    auths: dict[str, _Entry | None] | None = None


_decode_config = msgspec.json.Decoder(_DockerConfig).decode
_decode_cfg = msgspec.json.Decoder(dict[str, _Entry | None]).decode


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
    """A credential, with the key that selects its images."""

    key: str
    """`host[:port][/path]`, with globs in the host."""
    location: _Location
    credential: Credential


@dataclass(frozen=True, slots=True)
class Keyring:
    """The credentials of a pod's pull secrets."""

    entries: tuple[_KeyringEntry, ...] = ()
    """The entries, sorted by key in descending order. Equal keys keep the order of the secrets.

    A longer path therefore comes before its prefix.
    """
    problems: tuple[str, ...] = ()
    """One message for each secret that could not be read."""
    bytes: int = field(default=0, compare=False)
    """The memory of the keyring, in bytes."""

    def matching(self, name: str) -> tuple[Credential, ...]:
        """Return all credentials for `registry/repository`, the most specific key first.

        The kubelet tries them all in this order. The time is proportional to the number of entries
        and to the length of their keys, so call this in a thread.
        """
        image = _parse_location(name)
        credentials = [
            entry.credential for entry in self.entries if image and entry.location.covers(image)
        ]
        if not credentials and name.partition("/")[0] in _DOCKER_HUB_NAMES:
            credentials = [entry.credential for entry in self.entries if entry.key == _DOCKER_HUB]
        return tuple(dict.fromkeys(credentials))


def read_keyring(secrets: Iterable[PullSecret]) -> Keyring:
    """Return a keyring of the pull secrets. Its `problems` list the unreadable secrets.

    The time is proportional to the length of the secrets, so call this in a thread.
    """
    entries: list[_KeyringEntry | None] = []
    problems: list[str] = []
    for secret in secrets:
        try:
            secret_entries = [*islice(_read_entries(secret), MAX_REGISTRIES + 1 - len(entries))]
        except (ValueError, RecursionError) as error:
            # Do not include the error's text: it may quote the secret.
            why = secret.problem or f"cannot be read ({type(error).__name__})"
            problems.append(f"pull secret {secret.name!r} {why}" if secret.name else why)
            continue
        entries += secret_entries
        if len(entries) > MAX_REGISTRIES:
            del entries[MAX_REGISTRIES:]
            problems.append(
                f"only the first {MAX_REGISTRIES} registries in the pull secrets are used"
            )
            break
    usable = [entry for entry in entries if entry is not None]
    # The sort is stable, so equal keys keep the order of the secrets.
    usable.sort(key=lambda entry: entry.key, reverse=True)
    content = tuple(usable), tuple(problems)
    return Keyring(*content, bytes_of(content))


def _read_entries(secret: PullSecret) -> Iterator[_KeyringEntry | None]:
    """Yield the entries of a secret, with None for an entry that has no credential or valid key.

    Raises ValueError or RecursionError if the secret is unreadable.
    """
    if secret.problem:
        raise ValueError(secret.problem)
    if secret.type == DOCKER_CONFIG_JSON:
        auths = _decode_config(with_usual_names(secret.content)).auths or {}
    elif secret.type == DOCKER_CFG:
        auths = _decode_cfg(with_usual_names(secret.content))
    else:
        # The kubelet also ignores secrets of other types.
        return
    for text, entry in auths.items():
        credential = _parse_credential(entry or _Entry())
        key = _key_of_url(text)
        location = None if key is None or len(key) > MAX_KEY_CHARACTERS else _parse_location(key)
        # The runtimes send no user name without a password. `az acr login` writes one beside an
        # `identitytoken`, which the kubelet ignores.
        if key is None or location is None or not credential.password:
            yield None
        else:
            yield _KeyringEntry(key, location, credential)


def _parse_credential(entry: _Entry) -> Credential:
    """Return the user name and password of an entry. Raises ValueError if `auth` is malformed."""
    if not entry.auth:
        return Credential(entry.username or "", entry.password or "")
    # Go ignores these two characters, which the command `base64` inserts.
    text = entry.auth.replace("\r", "").replace("\n", "").strip()
    padded = text + "=" * (-len(text) % 4)
    try:
        username, colon, password = b64decode(padded, validate=True).decode().partition(":")
    except binascii.Error as error:
        raise ValueError("auth is not base64") from error
    if not colon:
        raise ValueError("auth is not of the form username:password")
    return Credential(username, password)


def _key_of_url(url: str) -> str | None:
    """Return the key of a secret's entry: its URL without scheme and without `/v1/` or `/v2/`."""
    split = _split_url(url if url.startswith(("https://", "http://")) else f"https://{url}")
    if split is None:
        return None
    host, path = split
    if path.startswith(("/v2/", "/v1/")):
        path = path[3:]
    return host + (path if path != "/" else "")


def _split_url(url: str) -> tuple[str, str] | None:
    """Return the host with its port, and the path; None if the URL is malformed."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return parts.netloc.rpartition("@")[2], parts.path


def _parse_location(name: str) -> _Location | None:
    """Return the location of a key or of an image, or None if it is not valid in a URL."""
    split = _split_url(f"https://{name}")
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
