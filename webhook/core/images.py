"""Queries for the entrypoints of images, and their results.

A container without `command` starts the entrypoint of its image. A decision does no I/O. It reads
the results of earlier queries and reports the queries that have no result yet. The caller looks up
the missing images (`webhook.images`) and asks for the decision again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from webhook.core.globs import glob_matches

_MAX_HOST_CHARACTERS = 253
"""The maximum length of a DNS name. A longer host matches no glob."""
MAX_REFERENCE_CHARACTERS = 600
"""The maximum length of an image reference: a name of 255 characters, a tag of 128 and a digest of
135, rounded up.

podsettle sees a pod before the API server validates it, so the reference may be longer."""
MAX_IMAGES_PER_POD = 10
"""The maximum number of images that are looked up for one pod. It bounds the requests to registries
for one review."""


@dataclass(frozen=True, slots=True)
class LookupRules:
    """The registries that a policy allows podsettle to ask, and mirrors of registries."""

    registries: tuple[str, ...] = ()
    """Globs on `host` or `host:port`."""
    mirrors: tuple[tuple[str, str], ...] = ()
    """Pairs of a registry and the mirror to ask instead of it."""

    def allows(self, host: str) -> bool:
        """Return whether podsettle may ask a registry, `host` or `host:port`.

        A `*` in a glob's host stands for any run of characters. The ports must be equal: a glob
        without a port allows only hosts without a port. The port `*` allows every port.
        """
        host_name, port = split_port(host)
        if len(host_name) > _MAX_HOST_CHARACTERS:
            return False
        for glob in self.registries:
            host_glob, glob_port = split_port(glob)
            port_allowed = glob_port in (port, "*" if port else port)
            if port_allowed and glob_matches(host_glob, host_name):
                return True
        return False

    def mirror_of(self, host: str) -> str | None:
        """Return the mirror to ask instead of a registry, if there is one."""
        return next((mirror for original, mirror in self.mirrors if original == host), None)

    def names_exactly(self, host: str) -> bool:
        """Return whether the policy names this `host` or `host:port`, as a registry or a mirror.

        A glob with a wildcard does not count.
        """
        mirrors = (mirror.partition("/")[0] for _, mirror in self.mirrors)
        return host in self.registries or host in mirrors


def split_port(host: str) -> tuple[str, str]:
    """Return the host and the port of `host:port`. The port is empty if there is none."""
    name, colon, port = host.rpartition(":")
    return (name, port) if colon and not port.endswith("]") else (host, "")


class ImageConfig(NamedTuple):
    """The Entrypoint and the Cmd of an image."""

    entrypoint: tuple[str, ...]
    cmd: tuple[str, ...]


class Unavailable(NamedTuple):
    """A failed look-up of an image's configuration."""

    why: str
    """The reason, in words for the owner of the pod."""


@dataclass(frozen=True, slots=True)
class ImageQuery:
    """One image whose configuration a decision needs.

    `architectures` holds the architectures of the nodes that the pod could land on. It is empty if
    one of these architectures is unknown. The fields after it only say how the image is pulled. No
    decision depends on them, and `Images` adds them.
    """

    image: str
    rules: LookupRules
    architectures: frozenset[str] = frozenset()
    namespace: str = ""
    pull_secrets: tuple[str, ...] = ()
    service_account: str = ""


class PullIdentity(NamedTuple):
    """The namespace of a pod, and the names in its spec with which its images are pulled."""

    namespace: str = ""
    pull_secrets: tuple[str, ...] = ()
    service_account: str = ""

    def complete(self, query: ImageQuery) -> ImageQuery:
        """Return a query with the fields that say how its image is pulled."""
        return ImageQuery(query.image, query.rules, query.architectures, *self)


KnownImages: TypeAlias = Mapping[ImageQuery, ImageConfig | Unavailable]

NO_IMAGES: KnownImages = {}
_NOT_LOOKED_UP = Unavailable("the image was not looked up")


class Images:
    """The images that one decision knows, and the images that it needs but does not know."""

    __slots__ = ("_identity", "_identity_of_pod", "_known", "missing")

    def __init__(
        self,
        known: KnownImages = NO_IMAGES,
        identity_of_pod: Callable[[], PullIdentity] = PullIdentity,
    ) -> None:
        """`known` has the results of queries. `identity_of_pod` is called if one is needed."""
        self._known = known
        self._identity_of_pod = identity_of_pod
        self._identity: PullIdentity | None = None
        self.missing: dict[ImageQuery, None] = {}
        """The queries without a result, in the order of the calls to `find`. The values mean
        nothing: the dict serves as an ordered set."""

    def find(self, query: ImageQuery) -> ImageConfig | Unavailable:
        """Return the known result of a query. Record the query as missing if there is none.

        The query need not say how the image is pulled.
        """
        if self._identity is None:
            self._identity = self._identity_of_pod()
        query = self._identity.complete(query)
        result = self._known.get(query)
        if result is None:
            self.missing[query] = None
            return _NOT_LOOKED_UP
        return result


def escape_dollars(text: str) -> str:
    """Escape one word of an image's command for a pod's `command` or `args`.

    In the pod's lists the kubelet replaces `$(NAME)` and turns `$$` into `$`. It does not do this
    in the lists of the image (kubernetes `third_party/forked/golang/expansion`).
    """
    return text.replace("$", "$$")
