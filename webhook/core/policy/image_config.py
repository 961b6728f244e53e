"""What images bring to a container without `command`: what is asked, what may be answered.

A decision does no I/O. It is handed the images that are known, reports those that it lacks, and is
made once more when they were looked up (`webhook.images`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec
from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from webhook.core.cluster.nodes import Nodes, any_could_run
from webhook.core.pod import PodSpec
from webhook.core.types import StrictModel, glob_matches

_PORT = "(:[0-9]{1,5})?"
_ADDRESS = r"\[[0-9a-f:.]{2,45}\]"
HOST_PATTERN = f"^([a-z0-9][-a-z0-9.]{{0,252}}|{_ADDRESS}){_PORT}$"
GLOB_PATTERN = rf"^([-a-z0-9.*]{{1,253}}|{_ADDRESS})(:([0-9]{{1,5}}|\*))?$"
MIRROR_PATTERN = HOST_PATTERN.replace("$", "(/[a-z0-9][-a-z0-9._/]{0,199})?$")
_HOST = re.compile(HOST_PATTERN, re.ASCII)
_GLOB = re.compile(GLOB_PATTERN, re.ASCII)
_MIRROR = re.compile(MIRROR_PATTERN, re.ASCII)


def _check_host(host: str) -> str:
    if not _HOST.fullmatch(host):
        raise ValueError(f"{host!r} is not a registry: write it as registry.example or host:5000")
    return host


def _check_glob(glob: str) -> str:
    if not _GLOB.fullmatch(glob):
        raise ValueError(
            f"{glob!r} can match no registry: write it as quay.io, *.example.com or host:5000"
        )
    return glob


def _check_mirror(mirror: str) -> str:
    if not _MIRROR.fullmatch(mirror):
        raise ValueError(f"{mirror!r} is not a mirror: write it as host, host:5000 or host/path")
    return mirror


def _text(pattern: str, **further: int) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": pattern, **further})


RegistryHost = Annotated[str, AfterValidator(_check_host), _text(HOST_PATTERN)]
RegistryGlob = Annotated[str, AfterValidator(_check_glob), _text(GLOB_PATTERN, maxLength=300)]
Mirror = Annotated[str, AfterValidator(_check_mirror), _text(MIRROR_PATTERN, maxLength=500)]

_MOST_ENTRIES = 100
_MAX_HOST_CHARACTERS = 253
"""Of a DNS name. A longer one matches no glob."""
MAX_REFERENCE_CHARACTERS = 600
"""Of an image: a name of 255, a tag of 128 and a digest of 135. A pod is seen before the API server
has validated it."""


def _add_mirror_rules(schema: dict[str, Any]) -> None:
    # Else the API server would drop an entry that is null, and ask the registry itself.
    for values in schema["patternProperties"].values():
        values["nullable"] = True
    schema["x-kubernetes-validations"] = [
        {
            "rule": f"self.all(key, key.matches(r'{HOST_PATTERN}'))",
            "message": "has a key that is not a registry",
            "messageExpression": f"self.filter(key, !key.matches(r'{HOST_PATTERN}'))[0]"
            " + ' is not a registry'",
        },
        {
            "rule": "self.all(key, type(self[key]) == string)",
            "message": "has a registry whose mirror is empty, should be a string",
            "messageExpression": "self.filter(key, type(self[key]) != string)[0]"
            " + ' is empty, should be a string'",
        },
    ]


_NOWHERE = "lookup: Registry needs registries or mirrors: nothing else is ever asked"


class ImageConfigSettings(StrictModel):
    """Where podsettle may learn what an image starts, for containers without `command`."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "!has(self.lookup) || self.lookup != 'Registry'"
                    " || (has(self.registries) && size(self.registries) > 0)"
                    " || (has(self.mirrors) && size(self.mirrors) > 0)",
                    "message": _NOWHERE,
                }
            ]
        }
    )

    lookup: Literal["Never", "Registry"] = Field(
        default="Never",
        description="Never: a container without command is left alone (NoCommand). Registry: its "
        "image's entrypoint is asked for at the image's registry, over HTTPS.",
    )
    registries: tuple[RegistryGlob, ...] = Field(
        default=(),
        strict=False,
        max_length=_MOST_ENTRIES,
        description="Registries that may be asked: globs on the host, with the port where the "
        "images name one. docker.io is Docker Hub.",
    )
    mirrors: dict[RegistryHost, Mirror] = Field(
        default_factory=dict,
        max_length=_MOST_ENTRIES,
        description="Registries that are asked in the place of others: host, perhaps with a path "
        "before the image's. A mirror needs no entry in registries.",
        json_schema_extra=_add_mirror_rules,
    )

    @model_validator(mode="after")
    def _asks_somebody(self) -> ImageConfigSettings:
        if self.lookup == "Registry" and not self.registries and not self.mirrors:
            raise PydanticCustomError("nowhere", _NOWHERE)
        return self

    def __hash__(self) -> int:
        """What has no hash, pydantic copies for each policy that leaves it out."""
        return hash((self.lookup, self.registries, frozenset(self.mirrors.items())))

    @property
    def rules(self) -> LookupRules | None:
        """The same as decisions carry it; None where nothing is looked up."""
        if self.lookup == "Never":
            return None
        return LookupRules(self.registries, tuple(sorted(self.mirrors.items())))


@dataclass(frozen=True, slots=True)
class LookupRules:
    """Which registries may be asked, and which mirrors stand in for which."""

    registries: tuple[str, ...] = ()
    mirrors: tuple[tuple[str, str], ...] = ()

    def allows(self, host: str) -> bool:
        """Whether a registry, `host` or `host:port`, may be asked.

        A glob's `*` stands for any run of characters of the host; a port is matched apart from
        it, and one that the glob does not name is not meant.
        """
        name, port = _split(host)
        if len(name) > _MAX_HOST_CHARACTERS:
            return False
        for glob in self.registries:
            wanted, wanted_port = _split(glob)
            if wanted_port in (port, "*" if port else port) and glob_matches(wanted, name):
                return True
        return False

    def mirror_of(self, host: str) -> str | None:
        """What is asked in a registry's place, if anything."""
        return next((mirror for original, mirror in self.mirrors if original == host), None)

    def names(self, host: str) -> bool:
        """Whether the operator wrote this very `host` or `host:port`, with no wildcard in it."""
        mirrors = (mirror.partition("/")[0] for _, mirror in self.mirrors)
        return host in self.registries or host in mirrors


def _split(host: str) -> tuple[str, str]:
    name, colon, port = host.rpartition(":")
    return (name, port) if colon and not port.endswith("]") else (host, "")


class ImageConfig(NamedTuple):
    """What an image starts where the pod does not say: its Entrypoint and its Cmd."""

    entrypoint: tuple[str, ...]
    cmd: tuple[str, ...]


class Unavailable(NamedTuple):
    """An image whose configuration cannot be had, and why: in words for the pod's owner."""

    why: str


@dataclass(frozen=True, slots=True)
class ImageQuery:
    """One image that a decision wants to know.

    `architectures` are those of the nodes that the pod could land on; empty where that is not
    known. `pull_secrets` and `service_account` are as the pod states them.
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
    """The images that one decision knows, and those that it turned out to lack."""

    known: KnownImages = NO_IMAGES
    lacking: dict[ImageQuery, None] = {}
    """In the order in which they were asked for, each once."""

    def find(self, query: ImageQuery) -> ImageConfig | Unavailable:
        """What is known of an image."""
        found = self.known.get(query)
        if found is None:
            self.lacking[query] = None
            return _NOT_ASKED
        return found


def escape(text: str) -> str:
    """A text of an image as one that survives in `command` and `args` of a pod.

    There the kubelet replaces `$(NAME)` and takes `$$` for one `$`; of what comes out of an image
    it touches nothing (kubernetes `third_party/forked/golang/expansion`).
    """
    return text.replace("$", "$$")


_ARCHITECTURE = "kubernetes.io/arch"


def architectures(nodes: Nodes, pod: PodSpec) -> frozenset[str]:
    """The architectures of the nodes that a pod could land on; empty where one is not known.

    Where no known node fits, the pod waits for one that nobody knows yet, and what its
    nodeSelector says is all there is to go by.
    """
    by_label: dict[str, list[Any]] = {}
    for node in nodes.all:
        by_label.setdefault(node.labels.get(_ARCHITECTURE, ""), []).append(node)
    found = frozenset(label for label, some in by_label.items() if any_could_run(tuple(some), pod))
    if not found:
        selected = (pod.node_selector or {}).get(_ARCHITECTURE)
        return frozenset({selected}) if selected else found
    return frozenset() if "" in found else found
