"""Queries for the entrypoints of images, and their results.

A container without `command` starts what its image says. A decision does no I/O: it gets the images
that are known and reports those that are missing. The caller looks the missing images up
(`webhook.images`) and decides again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import msgspec

from webhook.core.types import glob_matches

_MAX_HOST_CHARACTERS = 253
"""The length of a DNS name. A longer host matches no glob."""
MAX_REFERENCE_CHARACTERS = 600
"""The length of an image reference: a name of 255, a tag of 128 and a digest of 135, rounded up.

podsettle sees a pod before the API server validates it, so the reference may be longer."""


@dataclass(frozen=True, slots=True)
class LookupRules:
    """The registries that a policy allows podsettle to ask, and the mirrors to ask instead."""

    registries: tuple[str, ...] = ()
    mirrors: tuple[tuple[str, str], ...] = ()

    def allows(self, host: str) -> bool:
        """Return whether podsettle may ask a registry, `host` or `host:port`.

        A glob's `*` stands for any run of characters of the host. The port is matched apart from
        the host: a glob without a port allows only hosts without a port.
        """
        name, port = _split_port(host)
        if len(name) > _MAX_HOST_CHARACTERS:
            return False
        for glob in self.registries:
            wanted, wanted_port = _split_port(glob)
            if wanted_port in (port, "*" if port else port) and glob_matches(wanted, name):
                return True
        return False

    def mirror_of(self, host: str) -> str | None:
        """Return the mirror to ask instead of a registry, if there is one."""
        return next((mirror for original, mirror in self.mirrors if original == host), None)

    def names(self, host: str) -> bool:
        """Return whether the policy names this `host` or `host:port` without a wildcard."""
        mirrors = (mirror.partition("/")[0] for _, mirror in self.mirrors)
        return host in self.registries or host in mirrors


def _split_port(host: str) -> tuple[str, str]:
    name, colon, port = host.rpartition(":")
    return (name, port) if colon and not port.endswith("]") else (host, "")


class ImageConfig(NamedTuple):
    """The Entrypoint and the Cmd of an image."""

    entrypoint: tuple[str, ...]
    cmd: tuple[str, ...]


class Unavailable(NamedTuple):
    """The reason, for the pod's owner, why an image's configuration is unavailable."""

    why: str


@dataclass(frozen=True, slots=True)
class ImageQuery:
    """One image whose configuration a decision needs.

    `architectures` are those of the nodes that the pod could land on. They are empty if one of them
    is unknown. `pull_secrets` and `service_account` are those of the pod.
    """

    image: str
    rules: LookupRules
    architectures: frozenset[str] = frozenset()
    namespace: str = ""
    pull_secrets: tuple[str, ...] = ()
    service_account: str = ""


KnownImages: TypeAlias = Mapping[ImageQuery, ImageConfig | Unavailable]

NO_IMAGES: KnownImages = {}
_NOT_ASKED = Unavailable("the image was not looked up")


class Images(msgspec.Struct):
    """The images that one decision knows, and the images that it turned out to need."""

    known: KnownImages = NO_IMAGES
    missing: dict[ImageQuery, None] = {}
    """The queries without a result, each once, in the order of the calls to `find`."""

    def find(self, query: ImageQuery) -> ImageConfig | Unavailable:
        """Return the known result of a query. Record the query as missing if there is none."""
        found = self.known.get(query)
        if found is None:
            self.missing[query] = None
            return _NOT_ASKED
        return found


def escape_dollars(text: str) -> str:
    """Return a text of an image so that it keeps its meaning in a pod's `command` or `args`.

    The kubelet replaces `$(NAME)` and turns `$$` into `$` in the pod's lists, but not in those that
    come from the image (kubernetes `third_party/forked/golang/expansion`).
    """
    return text.replace("$", "$$")
