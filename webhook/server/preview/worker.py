"""The worker process of previews: `python -m webhook.server.preview.worker`, its socket as fd 0.

It reads and renders what clients send to /preview, apart from the process that answers reviews:
with less memory, at a lower priority, and ended by the server where it takes too long. It ends when
the server closes the socket or is gone, also while it is at work: a thread waits for that.
"""

from __future__ import annotations

import hashlib
import math
import os
import queue
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from types import FrameType

from webhook.cluster.snapshot import Snapshot
from webhook.core.admission.decide import OperatorSettings
from webhook.core.cluster.nodes import Node, Nodes
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.cluster.view import Namespace
from webhook.core.images import (
    NO_IMAGES,
    ImageConfig,
    ImageQuery,
    KnownImages,
    LookupRules,
    Unavailable,
)
from webhook.core.labels import parse_labels
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.model import SettlePolicy
from webhook.core.preview.document import DocumentError
from webhook.core.preview.model import ObjectWithoutPod, render, render_passed_over
from webhook.core.preview.preview import preview_all
from webhook.core.preview.workloads import PassedOver
from webhook.core.preview.yaml_documents import load_documents
from webhook.images.reference import parse as parse_image
from webhook.server.preview.messages import (
    HEADER_BYTES,
    IMAGES_IN_MESSAGE,
    PIECE_BYTES,
    AnswerPiece,
    BodyPart,
    ClassesPart,
    Finished,
    ImageNeeded,
    ImagesNeeded,
    KnownImage,
    NamespaceFound,
    NamespaceNeeded,
    NodesPart,
    PoliciesPart,
    Ready,
    Refused,
    RulesNeeded,
    Run,
    ToServer,
    ToWorker,
    ViewComplete,
    decode_for_worker,
    frame,
    frame_length,
)

MAX_PODS = 500
MAX_OBJECTS_WITHOUT_POD = 5_000
MAX_LINES_OF_DETAIL = 20
"""Lines of an error that says why there is no pod at all."""
MAX_DETAIL_CHARACTERS = 10_000
"""Of what says why there is no answer: names, kinds and keys of the text stand in it."""
MAX_IMAGES = 500
"""Images that are looked up for one preview."""
_MAX_NAMESPACE_LENGTH = 63
"""Characters (RFC 1123): a longer name is no namespace's, and the server is not asked for it."""
_WORK_SECONDS, _DRAIN_BODY_TIMEOUT_SECONDS = 0.02, 0.01
"""CPU time after which the worker pauses, and for how long. A CPU limit is the container's: once it
is used up, the kernel stops the server as well for the rest of a period of 100 ms."""
_STACK_BYTES = 256 * 1024


class _ProtocolError(Exception):
    """The server sent what it never sends."""


class _Channel:
    """The socket to the server. What arrives is read by a thread, which ends the process at EOF."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._arrived: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.stack_size(_STACK_BYTES)
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, message: ToServer) -> None:
        self.send_frame(frame(message))

    def send_frame(self, encoded: bytes) -> None:
        self._connection.sendall(encoded)

    def receive(self) -> ToWorker:
        return decode_for_worker(self._arrived.get())

    def _read(self) -> None:
        try:
            with self._connection.makefile("rb") as stream:
                while header := stream.read(HEADER_BYTES):
                    self._arrived.put(stream.read(frame_length(header)))
        finally:
            # Not sys.exit: the main thread may be at work, and nothing is left to be saved.
            os._exit(0)


class _Namespaces(Mapping[str, Namespace]):
    """The namespaces of the view, each asked for once in a run. Iterates over those asked for."""

    def __init__(self, channel: _Channel) -> None:
        self._channel = channel
        self._asked: dict[str, Namespace | None] = {}

    def __getitem__(self, name: str) -> Namespace:
        if name not in self._asked:
            self._asked[name] = self._ask(name)
        found = self._asked[name]
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return (name for name, found in self._asked.items() if found is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _ask(self, name: str) -> Namespace | None:
        if len(name) > _MAX_NAMESPACE_LENGTH:
            return None
        self._channel.send(NamespaceNeeded(name))
        answer = self._channel.receive()
        if not isinstance(answer, NamespaceFound):
            raise _ProtocolError(repr(type(answer)))
        return answer.namespace


class _Images(Mapping[ImageQuery, ImageConfig | Unavailable]):
    """What is known of images. Those that no registry can have are known to be none."""

    def __init__(self, found: Mapping[bytes, ImageConfig | Unavailable], complete: bool) -> None:
        """With `complete`, what is not among those found was not looked up, and never will be."""
        self._found = found
        self._complete = complete

    def __getitem__(self, query: ImageQuery) -> ImageConfig | Unavailable:
        found = self._found.get(_key(query))
        if found is not None:
            return found
        try:
            parse_image(query.image)
        except ValueError as error:
            return Unavailable(str(error))
        if self._complete:
            return Unavailable(
                f"the image was not looked up: a preview looks {MAX_IMAGES} up at the most"
            )
        raise KeyError(query)

    def __iter__(self) -> Iterator[ImageQuery]:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._found)


def _key(query: ImageQuery) -> bytes:
    """Of an image as it is looked up, which is without credentials."""
    parts = (query.image, query.rules, sorted(query.architectures), query.namespace)
    text = repr(parts).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).digest()


class _Preview:
    """One text, previewed. Raises DocumentError or ValueError for one that cannot be."""

    def __init__(self, run: Run, view: Snapshot, images: KnownImages) -> None:
        self._run = run
        self._view = view
        self._images = images
        self._pods: list[bytes] = []
        self._without: dict[bool, list[ObjectWithoutPod]] = {True: [], False: []}
        """By whether they are malformed."""
        self.needed: dict[bytes, ImageQuery] = {}
        """Images that have to be looked up first."""

    def read(self, body: bytes) -> None:
        labels = self._run.namespace_labels
        supposed = None if labels is None else parse_labels(labels)
        documents = load_documents(body, "body")
        if not documents:
            raise ValueError("the body is empty: send a Pod or a workload")
        count = 0
        for document in documents:
            for found in preview_all(
                document.value,
                self._view.policies,
                self._view,
                OperatorSettings(self._run.own_namespace, self._run.linger_image),
                namespace=self._run.namespace,
                namespace_labels=supposed,
                template_path=self._run.template_path,
                images=self._images,
            ):
                if isinstance(found, PassedOver):
                    self._pass_over(render_passed_over(found, document), found.malformed)
                    continue
                count += 1
                if count > MAX_PODS:
                    raise ValueError(f"more than {MAX_PODS} pods: send them in parts")
                if self._run.images == "Ask":
                    for query in found.decision.missing_images:
                        self.needed.setdefault(_key(query), query)
                if not self.needed:
                    self._pods.append(render(found).model_dump_json(by_alias=True).encode())
        if not count:
            raise ValueError(self._no_pod())

    def _pass_over(self, found: ObjectWithoutPod, malformed: bool) -> None:
        self._without[malformed].append(found)
        if sum(map(len, self._without.values())) > MAX_OBJECTS_WITHOUT_POD:
            raise ValueError(
                f"more than {MAX_OBJECTS_WITHOUT_POD} objects without a pod: send them in parts"
            )

    def _no_pod(self) -> str:
        without = [*self._without[True], *self._without[False]]
        lines = [str(found) for found in without[:MAX_LINES_OF_DETAIL]]
        if len(without) > len(lines):
            lines.append(f"and {len(without) - len(lines)} more objects without a pod")
        return "\n".join(lines) or "the list is empty: there is no pod in it"

    def answer(self) -> Iterator[bytes]:
        """The JSON of a PreviewAnswer, in parts of any length."""
        for name, items in (
            (b'{"pods":[', self._pods),
            (b'],"passedOver":[', _encoded(self._without[False])),
            (b'],"unreadable":[', _encoded(self._without[True])),
        ):
            yield name
            for index, item in enumerate(items):
                if index:
                    yield b","
                yield item
        yield b"]}"


def _encoded(objects: list[ObjectWithoutPod]) -> Iterator[bytes]:
    return (found.model_dump_json(by_alias=True).encode() for found in objects)


class _Worker:
    """Everything between two messages."""

    def __init__(self, channel: _Channel, memory_bytes: int) -> None:
        self._channel = channel
        self._out_of_memory = frame(
            Refused(
                f"a preview of this takes more than {memory_bytes >> 20} MiB of memory: send it in "
                "parts, or use `podsettle preview`, which has no such limit",
                out_of_memory=True,
            )
        )
        self._policies: list[bytes] = []
        self._nodes: list[Node] = []
        self._classes: dict[str, RuntimeClassInfo] = {}
        self._view = Snapshot()
        self._policies_due = self._nodes_due = False
        self._body: list[bytes] = []
        self._images: dict[bytes, ImageConfig | Unavailable] = {}

    def take(self, message: ToWorker) -> None:
        match message:
            case PoliciesPart(first, documents):
                self._policies = [*(() if first else self._policies), *documents]
                self._policies_due = True
            case NodesPart(first, nodes):
                self._nodes = [*(() if first else self._nodes), *nodes]
                self._nodes_due = True
            case ClassesPart(first, classes):
                known = {} if first else self._classes
                self._classes = known | {found.name: found for found in classes}
            case ViewComplete():
                self._compile(message)
            case BodyPart(data):
                self._body.append(data)
            case KnownImage():
                self._images[message.key] = (
                    ImageConfig(message.entrypoint, message.cmd)
                    if message.unavailable is None
                    else Unavailable(message.unavailable)
                )
            case Run():
                self._run(message)
            case _:
                raise _ProtocolError(repr(type(message)))

    def _compile(self, rest: ViewComplete) -> None:
        view = replace(
            self._view,
            runtime_classes=self._classes,
            server_version=rest.server_version,
            invents_namespaces=rest.invents_namespaces,
        )
        if self._policies_due:
            documents = map(SettlePolicy.model_validate_json, self._policies)
            view = replace(view, policies=PolicySet(documents))
        if self._nodes_due:
            view = replace(view, nodes=Nodes(self._nodes))
        self._policies_due = self._nodes_due = False
        self._policies, self._nodes = [], []
        self._view = view

    def _run(self, run: Run) -> None:
        _limit_cpu(run.cpu_seconds)
        body, found = b"".join(self._body), self._images
        self._body, self._images = [], {}
        view = replace(self._view, namespaces=_Namespaces(self._channel))
        images = NO_IMAGES if run.images == "None" else _Images(found, run.images == "Told")
        try:
            preview = _Preview(run, view, images)
            preview.read(body)
            if preview.needed:
                self._ask_for(preview.needed)
            else:
                self._answer(preview)
            self._channel.send(Finished())
        except (DocumentError, ValueError) as error:
            self._channel.send(Refused(_shortened(str(error))))
        except MemoryError:
            # Made before: there may be no memory to make it now. The next preview gets a process
            # with a heap that nothing has torn.
            self._channel.send_frame(self._out_of_memory)
            os._exit(0)

    def _answer(self, preview: _Preview) -> None:
        piece = bytearray()
        for part in preview.answer():
            piece += part
            while len(piece) >= PIECE_BYTES:
                self._channel.send(AnswerPiece(bytes(piece[:PIECE_BYTES])))
                del piece[:PIECE_BYTES]
        self._channel.send(AnswerPiece(bytes(piece)))

    def _ask_for(self, needed: Mapping[bytes, ImageQuery]) -> None:
        rules: dict[LookupRules, int] = {}
        images: list[ImageNeeded] = []
        for key, query in islice(needed.items(), MAX_IMAGES):
            if query.rules not in rules:
                rules[query.rules] = len(rules)
                self._channel.send(RulesNeeded(query.rules))
            namespace = query.namespace[:_MAX_NAMESPACE_LENGTH]
            place = rules[query.rules]
            images.append(ImageNeeded(key, query.image, place, query.architectures, namespace))
        for start in range(0, len(images), IMAGES_IN_MESSAGE):
            self._channel.send(ImagesNeeded(images[start : start + IMAGES_IN_MESSAGE]))


def _shortened(detail: str) -> str:
    left_out = len(detail) - MAX_DETAIL_CHARACTERS
    if left_out <= 0:
        return detail
    return f"{detail[:MAX_DETAIL_CHARACTERS]}… and {left_out} more characters"


def _limit_cpu(seconds: int) -> None:
    """End the process after so much more CPU time: where the server is stopped, not gone."""
    _limit(resource.RLIMIT_CPU, math.ceil(time.process_time()) + seconds)


def _limit(kind: int, value: int) -> None:
    """Set a limit, as far as the hard limit that the process was started with lets it."""
    _, hard = resource.getrlimit(kind)
    limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (limit, hard))


def _rest(_signal: int, _frame: FrameType | None) -> None:
    time.sleep(_DRAIN_BODY_TIMEOUT_SECONDS)


def main() -> None:
    """Work until the socket is closed. The first argument: bytes of memory to make do with."""
    memory_bytes = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Private memory that can be written: the heap, not what is shared with other processes.
    _limit(resource.RLIMIT_DATA, memory_bytes)
    signal.signal(signal.SIGPROF, _rest)
    signal.setitimer(signal.ITIMER_PROF, _WORK_SECONDS, _WORK_SECONDS)
    channel = _Channel(socket.socket(fileno=0))
    worker = _Worker(channel, memory_bytes)
    channel.send(Ready())
    while True:
        worker.take(channel.receive())


if __name__ == "__main__":
    main()
