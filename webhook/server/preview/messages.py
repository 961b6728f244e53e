"""The messages between the server and the worker process, as frames on a Unix socket.

A frame is a length of four bytes, big-endian, and a message in MessagePack. The server sends its
view of the cluster in parts, because encoding the whole view in one step would block the event
loop. Each part takes a few milliseconds. The view is sent without namespaces, because there can be
thousands. The worker requests each namespace that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeAlias, TypeVar

import msgspec

from webhook.core.cluster.nodes import Node
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.cluster.view import Namespace
from webhook.core.defects.versions import Version
from webhook.core.images import LookupRules
from webhook.core.policy.snapshot import Snapshot

T = TypeVar("T")

HEADER_BYTES = 4
"""The size of the length field of a frame."""
MAX_FRAME_BYTES = 4 * 1024 * 1024
"""The maximum size of a message, which may contain an object. The API server accepts objects of at
most 3 MiB."""
PIECE_BYTES = 64 * 1024
"""The maximum size of an AnswerPiece."""
PART_BYTES = 64 * 1024
"""The size of a part of the view. A part ends with the object that reaches this size."""
MAX_POLICIES_PER_MESSAGE = 20
MAX_NODES_PER_MESSAGE = 200
MAX_CLASSES_PER_MESSAGE = 200
MAX_IMAGES_PER_MESSAGE = 50


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
    """The last part of the view. The worker compiles policies and nodes when it arrives."""

    server_version: Version | None
    invents_namespaces: bool


class BodyPart(msgspec.Struct, tag=True):
    """A piece of the text to preview."""

    data: bytes


class KnownImage(msgspec.Struct, tag=True):
    """The result of looking up an image that an earlier run of the same text needed."""

    key: bytes
    """The key in ImageNeeded."""
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    unavailable: str | None = None
    """Why the look-up failed. None if it succeeded."""


class Run(msgspec.Struct, tag=True):
    """A request to preview the text of the BodyParts before it."""

    own_namespace: str | None
    linger_image: str | None
    namespace: str | None
    namespace_labels: list[str] | None
    template_path: str | None
    images: Literal["None", "Ask", "UseKnown"]
    """What the worker does if a decision needs the configuration of an image. None: decide without
    it. Ask: answer with the images, so that the server looks them up. UseKnown: use the KnownImages
    that came before this message."""
    cpu_seconds: int
    docs_url: str | None


class NamespaceFound(msgspec.Struct, tag=True):
    """The answer to NamespaceNeeded. None if the view does not contain the namespace."""

    namespace: Namespace | None


class Ready(msgspec.Struct, tag=True):
    """The first message of the worker, which is then ready for a view."""


class NamespaceNeeded(msgspec.Struct, tag=True):
    """A request for a namespace whose labels a decision needs."""

    name: str


class ImageNeeded(msgspec.Struct):
    """An image whose configuration a decision needs."""

    key: bytes
    """Identifies the image in KnownImage."""
    image: str
    rules: int
    """The number of the RulesForImages that apply to the image. Each run numbers them from 0, in
    the order of sending."""
    architectures: frozenset[str]
    namespace: str


class RulesForImages(msgspec.Struct, tag=True):
    """The look-up rules for some of the images in later ImagesNeeded."""

    rules: LookupRules


class ImagesNeeded(msgspec.Struct, tag=True):
    """Some of the images whose configurations the decisions of a run need."""

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
_worker_decoder: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
_server_decoder: msgspec.msgpack.Decoder[ToServer] = msgspec.msgpack.Decoder(ToServer)


def decode_for_worker(data: bytes) -> ToWorker:
    """Decode a message of the server. Raises msgspec.DecodeError."""
    return _worker_decoder.decode(data)


def decode_for_server(data: bytes) -> ToServer:
    """Decode a message of the worker. Raises msgspec.DecodeError."""
    return _server_decoder.decode(data)


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


def view_parts(sent: Snapshot | None, view: Snapshot) -> Iterator[ToWorker]:
    """Yield the messages that update a worker from the view `sent` to `view`.

    `sent` is the view that the worker has, or None for a new worker. Views of one source share
    unchanged objects, so comparing identities finds the changes. Nothing is yielded for equal
    views. Namespaces are not included.
    """
    if sent is None or sent.policies is not view.policies:
        texts = (
            policy.model_dump_json(by_alias=True, exclude_unset=True).encode()
            for policy in view.policies.documents
        )
        for first, documents in _parts(texts, MAX_POLICIES_PER_MESSAGE, len):
            yield PoliciesPart(first, documents)
    if sent is None or sent.nodes is not view.nodes:
        for first, nodes in _parts(view.nodes.all, MAX_NODES_PER_MESSAGE, _encoded_bytes):
            yield NodesPart(first, nodes)
    if sent is None or sent.runtime_classes is not view.runtime_classes:
        for first, classes in _parts(
            view.runtime_classes.values(), MAX_CLASSES_PER_MESSAGE, _encoded_bytes
        ):
            yield ClassesPart(first, classes)
    if sent is None or not _equal_except_namespaces(sent, view):
        yield ViewComplete(view.server_version, view.invents_namespaces)


def _equal_except_namespaces(one: Snapshot, other: Snapshot) -> bool:
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
    """Yield pairs: whether this is the first part, and the items of the part.

    Without items, yield one empty part. A part ends at `max_items` items or at PART_BYTES.
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
