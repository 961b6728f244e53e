"""The messages between the server and the worker process, as frames on a Unix socket.

A frame is a length of four bytes, big-endian, and a message in MessagePack. The server sends its
view of the cluster in parts, because encoding it at once would block the event loop: each part
takes a few milliseconds. There can be thousands of namespaces, so the worker asks for each one that
it needs.
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
"""The length field of a frame."""
MAX_FRAME_BYTES = 4 * 1024 * 1024
"""Maximum of one message. The API server accepts objects up to 3 MiB."""
PIECE_BYTES = 64 * 1024
"""Part of an answer in one message."""
PART_BYTES = 64 * 1024
"""A part of the view ends with the object that reaches this length."""
POLICIES_IN_MESSAGE = 20
NODES_IN_MESSAGE = 200
CLASSES_IN_MESSAGE = 200
IMAGES_IN_MESSAGE = 50


class PoliciesPart(msgspec.Struct, tag=True):
    """Some of the SettlePolicies, as JSON. The first part replaces all earlier ones."""

    first: bool
    documents: list[bytes]


class NodesPart(msgspec.Struct, tag=True):
    """Some of the nodes. The first part replaces all earlier ones."""

    first: bool
    nodes: list[Node]


class ClassesPart(msgspec.Struct, tag=True):
    """Some of the RuntimeClasses. The first part replaces all earlier ones."""

    first: bool
    classes: list[RuntimeClassInfo]


class ViewComplete(msgspec.Struct, tag=True):
    """The rest of the view. The worker now compiles policies and nodes."""

    server_version: Version | None
    invents_namespaces: bool


class BodyPart(msgspec.Struct, tag=True):
    """A piece of the text to preview."""

    data: bytes


class KnownImage(msgspec.Struct, tag=True):
    """The result of looking up an image that an earlier run needed."""

    key: bytes
    """The key in ImageNeeded."""
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    unavailable: str | None = None
    """Why the look-up failed; None if it succeeded."""


class Run(msgspec.Struct, tag=True):
    """A request to preview the text of the BodyParts before it."""

    own_namespace: str | None
    linger_image: str | None
    namespace: str | None
    namespace_labels: list[str] | None
    template_path: str | None
    images: Literal["None", "Ask", "Told"]
    """What the worker does if a decision needs the configuration of an image. None: decide without
    it. Ask: answer with the images, and the server looks them up. Told: use the KnownImages that
    came before this message."""
    cpu_seconds: int


class NamespaceFound(msgspec.Struct, tag=True):
    """The answer to NamespaceNeeded; None if the view does not contain the namespace."""

    namespace: Namespace | None


class Ready(msgspec.Struct, tag=True):
    """The first message of the worker."""


class NamespaceNeeded(msgspec.Struct, tag=True):
    """A request for a namespace whose labels a decision needs."""

    name: str


class ImageNeeded(msgspec.Struct):
    """An image whose configuration a decision needs."""

    key: bytes
    """Identifies the image in KnownImage."""
    image: str
    rules: int
    """Which RulesForImages of this run apply to the image. They are numbered from 0, as sent."""
    architectures: frozenset[str]
    namespace: str


class RulesForImages(msgspec.Struct, tag=True):
    """Look-up rules for images in later ImagesNeeded."""

    rules: LookupRules


class ImagesNeeded(msgspec.Struct, tag=True):
    """Some of the images whose configuration decisions need."""

    images: list[ImageNeeded]


class AnswerPiece(msgspec.Struct, tag=True):
    """A piece of the answer, as JSON."""

    data: bytes


class Finished(msgspec.Struct, tag=True):
    """The end of a run, after all AnswerPieces or all ImagesNeeded."""


class Refused(msgspec.Struct, tag=True):
    """The end of a run without an answer."""

    detail: str
    out_of_memory: bool = False
    """Whether the run exceeded the memory limit. The worker then exits."""


ToWorker: TypeAlias = (
    PoliciesPart | NodesPart | ClassesPart | ViewComplete | BodyPart | KnownImage | Run
    | NamespaceFound
)  # fmt: skip
ToServer: TypeAlias = (
    Ready | NamespaceNeeded | RulesForImages | ImagesNeeded | AnswerPiece | Finished | Refused
)

_encode = msgspec.msgpack.Encoder().encode
_for_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
_for_server: msgspec.msgpack.Decoder[ToServer] = msgspec.msgpack.Decoder(ToServer)


def decode_for_worker(data: bytes) -> ToWorker:
    """Decode a message of the server. Raises msgspec.DecodeError."""
    return _for_worker.decode(data)


def decode_for_server(data: bytes) -> ToServer:
    """Decode a message of the worker. Raises msgspec.DecodeError."""
    return _for_server.decode(data)


def frame(message: ToWorker | ToServer) -> bytes:
    """Encode a message as a frame."""
    encoded = _encode(message)
    return len(encoded).to_bytes(HEADER_BYTES, "big") + encoded


def frame_length(header: bytes) -> int:
    """Return the length in a frame's header. Raises ValueError above MAX_FRAME_BYTES."""
    length = int.from_bytes(header, "big")
    if length > MAX_FRAME_BYTES:
        raise ValueError(f"a message of {length} bytes")
    return length


def view_parts(known: Snapshot | None, view: Snapshot) -> Iterator[ToWorker]:
    """Yield the messages that update a worker from the view `known` to `view`.

    Views of one source share unchanged objects, so comparing identities finds the changes. Nothing
    is yielded for equal views. Namespaces are not included.
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
    items: Iterable[T], max_items: int, size_of: Callable[[T], int]
) -> Iterator[tuple[bool, list[T]]]:
    """Yield the items in parts, at least one part, each with whether it is the first.

    A part ends at `max_items` items or at PART_BYTES.
    """
    first, part, size = True, list[T](), 0
    for item in items:
        part.append(item)
        size += size_of(item)
        if len(part) == max_items or size >= PART_BYTES:
            yield first, part
            first, part, size = False, [], 0
    if first or part:
        yield first, part


def _encoded_bytes(item: Node | RuntimeClassInfo) -> int:
    return len(_encode(item))
