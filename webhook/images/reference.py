"""Image references as container runtimes read them.

Grammar: https://pkg.go.dev/github.com/distribution/reference; defaults as in its
`ParseNormalizedNamed`, which the kubelet applies (kubernetes `pkg/util/parsers`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from webhook.core.images import MAX_REFERENCE_CHARACTERS, LookupRules
from webhook.images.errors import LookupFailedError

DOCKER_HUB = "docker.io"
_HUB_HOST = "registry-1.docker.io"
"""Where Docker Hub's registry really is."""
_LEGACY_DOCKER_HUB = "index.docker.io"
_OFFICIAL = "library/"
_LONGEST_NAME = 255
_HIGHEST_PORT = 65535

_LABEL = "(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[(?:[a-fA-F0-9:]+)\])(?::[0-9]{{1,5}})?"
_PART = "[a-z0-9]+(?:(?:[.]|_|__|-+)[a-z0-9]+)*"
_DOMAIN = re.compile(_HOST, re.ASCII)
_PATH = re.compile(rf"{_PART}(?:/{_PART})*", re.ASCII)
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}", re.ASCII)
_IDENTIFIER = re.compile(r"[0-9a-f]{64}", re.ASCII)


class Reference(NamedTuple):
    """An image: the registry's `host` or `host:port`, the repository, and which image of it."""

    host: str
    repository: str
    tag: str
    digest: str
    """Empty where the reference has none; then the tag says which image."""

    @property
    def name(self) -> str:
        """Registry and repository."""
        return f"{self.host}/{self.repository}"

    def __str__(self) -> str:
        return f"{self.name}@{self.digest}" if self.digest else f"{self.name}:{self.tag}"


class Registry(NamedTuple):
    """Where a repository is asked for."""

    host: str
    """`host` or `host:port`, as a URL has it."""
    repository: str
    name: str
    """What credentials are matched to."""
    rules: LookupRules
    """What the operator allows: also an address that is else never asked, if they spell it out."""


def is_digest(text: str) -> bool:
    """Whether a text is a digest that can be verified: sha256 or sha512."""
    return _DIGEST.fullmatch(text) is not None


def parse(text: str) -> Reference:
    """A reference with what it leaves out filled in. Raises ValueError where it is none."""
    if len(text) > MAX_REFERENCE_CHARACTERS:
        raise ValueError(f"{_shown(text)} is not an image reference")
    rest, at, digest = text.partition("@")
    if at and not is_digest(digest):
        raise ValueError(f"{_shown(text)} has no digest that can be verified behind its '@'")
    host, path = _split_host(rest)
    path, tag = _split_tag(path)
    if _IDENTIFIER.fullmatch(rest):
        raise ValueError(f"{_shown(text)} is an identifier, not the name of an image")
    if host == _LEGACY_DOCKER_HUB:
        host = DOCKER_HUB
    if host == DOCKER_HUB and "/" not in path:
        path = _OFFICIAL + path
    fits = _PATH.fullmatch(path) and (tag is None or _TAG.fullmatch(tag))
    if not fits or not _DOMAIN.fullmatch(host) or len(host) + 1 + len(path) > _LONGEST_NAME:
        raise ValueError(f"{_shown(text)} is not an image reference")
    if _port(host) > _HIGHEST_PORT:
        # The grammar allows it; nobody can be asked there.
        raise ValueError(f"{_shown(text)} names a port above {_HIGHEST_PORT}")
    return Reference(host.lower(), path, tag or ("" if digest else "latest"), digest)


def registry_of(reference: Reference, rules: LookupRules) -> Registry:
    """The registry to ask. Raises LookupFailedError where the rules allow none.

    A mirror is asked with the credentials that are for it: the registry's own are not shown to it.
    """
    mirror = rules.mirror_of(reference.host)
    if mirror is not None:
        host, _, path = mirror.partition("/")
        repository = f"{path}/{reference.repository}" if path else reference.repository
        return Registry(host, repository, f"{host}/{repository}", rules)
    if not rules.allows(reference.host):
        raise LookupFailedError(
            f"registry {reference.host} is not among the policy's imageConfig.registries"
        )
    host = _HUB_HOST if reference.host == DOCKER_HUB else reference.host
    return Registry(host, reference.repository, reference.name, rules)


def _split_host(name: str) -> tuple[str, str]:
    first, slash, rest = name.partition("/")
    # A dot, a port or an upper-case letter tells a host; "localhost" is one by itself.
    if slash and (set(".:") & set(first) or first == "localhost" or first != first.lower()):
        return first, rest
    return DOCKER_HUB, name


def _port(host: str) -> int:
    _, colon, port = host.rpartition(":")
    return int(port) if colon and not port.endswith("]") else 0


def _split_tag(path: str) -> tuple[str, str | None]:
    name, colon, tag = path.rpartition(":")
    return (name, tag) if colon else (path, None)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 100 else f"{text[:100]}…")
