"""What the server and the worker process of previews say to each other.

Frames on a Unix socket: a length of four bytes, big-endian, and a message in MessagePack. The view
of the cluster goes in parts, so that no part takes the event loop more than a few milliseconds to
encode; namespaces, of which there are thousands, go only as they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeAlias, TypeVar

import msgspec

from webhook.cluster.snapshot import Snapshot
from webhook.core.cluster.nodes import Node
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.cluster.view import Namespace
from webhook.core.defects.versions import Version
from webhook.core.images import LookupRules

T = TypeVar("T")

HEADER_BYTES = 4
"""Of a frame: the length of what follows."""
MAX_FRAME_BYTES = 4 * 1024 * 1024
"""Of one message: the API server takes objects up to 3 MiB."""
PIECE_BYTES = 64 * 1024
"""Of an answer that goes in one message."""
PART_BYTES = 64 * 1024
"""Of a part of the view, and no more than one object beyond it."""
POLICIES_IN_MESSAGE = 20
NODES_IN_MESSAGE = 200
CLASSES_IN_MESSAGE = 200
IMAGES_IN_MESSAGE = 50


class PoliciesPart(msgspec.Struct, tag=True):
    """Some of the SettlePolicies, as JSON. The first part replaces what was known."""

    first: bool
    documents: list[bytes]


class NodesPart(msgspec.Struct, tag=True):
    """Some of the nodes. The first part replaces what was known."""

    first: bool
    nodes: list[Node]


class ClassesPart(msgspec.Struct, tag=True):
    """Some of the RuntimeClasses. The first part replaces what was known."""

    first: bool
    classes: list[RuntimeClassInfo]


class ViewComplete(msgspec.Struct, tag=True):
    """The rest of the view; policies and nodes are compiled now."""

    server_version: Version | None
    invents_namespaces: bool


class BodyPart(msgspec.Struct, tag=True):
    """Some of the text to preview."""

    data: bytes


class KnownImage(msgspec.Struct, tag=True):
    """What was found of an image that an earlier run needed."""

    key: bytes
    """As the worker gave it."""
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    unavailable: str | None = None
    """Why it could not be had."""


class Run(msgspec.Struct, tag=True):
    """Preview the text that came in parts."""

    own_namespace: str | None
    linger_image: str | None
    namespace: str | None
    namespace_labels: list[str] | None
    template_path: str | None
    images: Literal["None", "Ask", "Told"]
    """What to do about images that decisions lack. None: they are not looked up. Ask: answer with
    those, and they are looked up. Told: they were, and what was found came before."""
    cpu_seconds: int


class NamespaceFound(msgspec.Struct, tag=True):
    """A namespace that the worker asked for; None where the view does not list it."""

    namespace: Namespace | None


class Ready(msgspec.Struct, tag=True):
    """The worker has started."""


class NamespaceNeeded(msgspec.Struct, tag=True):
    """A namespace whose labels a decision needs."""

    name: str


class ImageNeeded(msgspec.Struct):
    """An image that a decision lacks. `rules` is the place of its rules among those sent."""

    key: bytes
    """By which the worker knows the image in another run."""
    image: str
    rules: int
    architectures: frozenset[str]
    namespace: str


class RulesNeeded(msgspec.Struct, tag=True):
    """The rules of images that follow."""

    rules: LookupRules


class ImagesNeeded(msgspec.Struct, tag=True):
    """Some of the images that decisions lack."""

    images: list[ImageNeeded]


class AnswerPiece(msgspec.Struct, tag=True):
    """Some of the answer, as JSON."""

    data: bytes


class Finished(msgspec.Struct, tag=True):
    """The end of a run: of the answer, or of the images that are needed first."""


class Refused(msgspec.Struct, tag=True):
    """The end of a run that has no answer."""

    detail: str
    out_of_memory: bool = False
    """Whether the worker ends, for it needed more memory than it may have."""


ToWorker: TypeAlias = (
    PoliciesPart | NodesPart | ClassesPart | ViewComplete | BodyPart | KnownImage | Run
    | NamespaceFound
)  # fmt: skip
ToServer: TypeAlias = (
    Ready | NamespaceNeeded | RulesNeeded | ImagesNeeded | AnswerPiece | Finished | Refused
)

_encode = msgspec.msgpack.Encoder().encode
_for_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
_for_server: msgspec.msgpack.Decoder[ToServer] = msgspec.msgpack.Decoder(ToServer)


def decode_for_worker(data: bytes) -> ToWorker:
    """What the server sent. Raises msgspec.DecodeError."""
    return _for_worker.decode(data)


def decode_for_server(data: bytes) -> ToServer:
    """What the worker sent. Raises msgspec.DecodeError."""
    return _for_server.decode(data)


def frame(message: ToWorker | ToServer) -> bytes:
    """The message with its length in front."""
    encoded = _encode(message)
    return len(encoded).to_bytes(HEADER_BYTES, "big") + encoded


def frame_length(header: bytes) -> int:
    """The bytes that follow a header. Raises ValueError where they are more than a message has."""
    length = int.from_bytes(header, "big")
    if length > MAX_FRAME_BYTES:
        raise ValueError(f"a message of {length} bytes")
    return length


def view_parts(known: Snapshot | None, view: Snapshot) -> Iterator[ToWorker]:
    """What a worker that knows one view has to be told to know another; nothing where it does.

    Views of one source share what did not change between them. Namespaces are not told.
    """
    if known is None or known.policies is not view.policies:
        texts = (
            policy.model_dump_json(by_alias=True, exclude_unset=True).encode()
            for policy in view.policies.documents
        )
        for first, documents in _parts(texts, POLICIES_IN_MESSAGE, len):
            yield PoliciesPart(first, documents)
    if known is None or known.nodes is not view.nodes:
        for first, nodes in _parts(view.nodes.all, NODES_IN_MESSAGE, _encoded_bytes):
            yield NodesPart(first, nodes)
    if known is None or known.runtime_classes is not view.runtime_classes:
        for first, classes in _parts(
            view.runtime_classes.values(), CLASSES_IN_MESSAGE, _encoded_bytes
        ):
            yield ClassesPart(first, classes)
    if known is None or not _same_but_for_namespaces(known, view):
        yield ViewComplete(view.server_version, view.invents_namespaces)


def _same_but_for_namespaces(one: Snapshot, other: Snapshot) -> bool:
    return (
        one.policies is other.policies
        and one.nodes is other.nodes
        and one.runtime_classes is other.runtime_classes
        and one.server_version == other.server_version
        and one.invents_namespaces == other.invents_namespaces
    )


def _parts(
    items: Iterable[T], most: int, size_of: Callable[[T], int]
) -> Iterator[tuple[bool, list[T]]]:
    """The items in parts, at least one, each with whether it is the first.

    A part ends with the item by which it has as many items, or bytes, as it may have.
    """
    first, part, size = True, list[T](), 0
    for item in items:
        part.append(item)
        size += size_of(item)
        if len(part) == most or size >= PART_BYTES:
            yield first, part
            first, part, size = False, [], 0
    if first or part:
        yield first, part


def _encoded_bytes(item: Node | RuntimeClassInfo) -> int:
    return len(_encode(item))
