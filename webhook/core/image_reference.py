"""Image references, parsed as container runtimes parse them.

Grammar: https://pkg.go.dev/github.com/distribution/reference. The defaults are those of its
`ParseNormalizedNamed`, which the kubelet calls (kubernetes `pkg/util/parsers`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from webhook.core.images import MAX_REFERENCE_CHARACTERS, split_port
from webhook.core.printable import cut

DOCKER_HUB = "docker.io"
_LEGACY_DOCKER_HUB = "index.docker.io"
_OFFICIAL_PREFIX = "library/"
# `NameTotalLengthMax` of the grammar's package.
_MAX_NAME_CHARACTERS = 255
_MAX_PORT = 65535

_LABEL = "(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[(?:[a-fA-F0-9:]+)\])(?::[0-9]{{1,5}})?"
_PART = "[a-z0-9]+(?:(?:[.]|_|__|-+)[a-z0-9]+)*"
_DOMAIN = re.compile(_HOST, re.ASCII)
_PATH = re.compile(rf"{_PART}(?:/{_PART})*", re.ASCII)
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}", re.ASCII)
_IDENTIFIER = re.compile(r"[0-9a-f]{64}", re.ASCII)


class Reference(NamedTuple):
    """An image reference. `host` may include a port. `digest` may be empty."""

    host: str
    repository: str
    tag: str
    digest: str

    @property
    def name(self) -> str:
        """The registry and the repository."""
        return f"{self.host}/{self.repository}"

    def __str__(self) -> str:
        return f"{self.name}@{self.digest}" if self.digest else f"{self.name}:{self.tag}"


def is_digest(text: str) -> bool:
    """Return whether a text is a digest that podsettle can verify: sha256 or sha512."""
    return _DIGEST.fullmatch(text) is not None


def parse_reference(text: str) -> Reference:
    """Parse a reference and fill in its defaults. Raises ValueError if it is invalid."""
    if len(text) > MAX_REFERENCE_CHARACTERS:
        raise ValueError(f"{_quote(text)} is not an image reference")
    name, separator, digest = text.partition("@")
    if separator and not is_digest(digest):
        raise ValueError(
            f"{_quote(text)} has no valid digest after its '@'; it must be sha256 or sha512"
        )
    host, path = _split_host(name)
    path, tag = _split_tag(path)
    if _IDENTIFIER.fullmatch(name):
        raise ValueError(f"{_quote(text)} is an identifier, not the name of an image")
    if host == _LEGACY_DOCKER_HUB:
        host = DOCKER_HUB
    if host == DOCKER_HUB and "/" not in path:
        path = _OFFICIAL_PREFIX + path
    is_valid = _PATH.fullmatch(path) and (tag is None or _TAG.fullmatch(tag))
    if (
        not is_valid
        or not _DOMAIN.fullmatch(host)
        or len(host) + 1 + len(path) > _MAX_NAME_CHARACTERS
    ):
        raise ValueError(f"{_quote(text)} is not an image reference")
    if int(split_port(host)[1] or 0) > _MAX_PORT:
        # The grammar allows five digits.
        raise ValueError(f"{_quote(text)} names a port above {_MAX_PORT}")
    return Reference(host.lower(), path, tag or ("" if digest else "latest"), digest)


def is_short_name(text: str) -> bool:
    """Return whether a valid reference names no registry, so that CRI-O chooses one.

    CRI-O takes the first part for a host by the rule of containers/image (`IsShortName` of
    `pkg/shortnames`). That differs from `parse_reference` for a host with upper-case letters only.
    A digest names no registry.
    """
    first, slash, _ = text.partition("@")[0].partition("/")
    if slash and (not {".", ":"}.isdisjoint(first) or first == "localhost"):
        return False
    try:
        parse_reference(text)
    except ValueError:
        return False
    return True


def is_placeholder(text: str) -> bool:
    """Return whether a reference stands for another image, which a program fills in later.

    Drone and Vela create all steps of a pipeline with such an image, and replace it when a step
    begins (drone-runner-kube `engine/convert.go`, go-vela/worker `runtime/kubernetes/image.go`).
    Istio replaces `auto`, the image of a proxy that a pod's author customizes.
    """
    path, _, last = text.partition("@")[0].rpartition("/")
    name, _ = _split_tag(last)
    return text == "auto" or name == "pause" or (name == "placeholder" and path.endswith("drone"))


def _split_host(name: str) -> tuple[str, str]:
    """Return the host and the path of a name. The default host is that of Docker Hub."""
    first, slash, rest = name.partition("/")
    # The first part is a host if it has a dot, a port or an upper-case letter, or is "localhost".
    if slash and (set(".:") & set(first) or first == "localhost" or first != first.lower()):
        return first, rest
    return DOCKER_HUB, name


def _split_tag(path: str) -> tuple[str, str | None]:
    """Return the path without its tag, and the tag."""
    name, colon, tag = path.rpartition(":")
    return (name, tag) if colon else (path, None)


def _quote(text: str) -> str:
    """Return a text for a message, in quotes and cut after 100 characters."""
    return repr(cut(text, 101))
