"""The worker process: `python -m webhook.server.preview.worker`, with its socket as stdin.

The input of /preview is parsed, decided and rendered in a process of its own, so that no preview
delays a review. The process has limits on memory and CPU, and a lower priority. The server kills it
after a deadline. It ends when the server closes the socket or dies, even while it is busy
(`Channel`).
"""

from __future__ import annotations

import math
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from types import FrameType

from webhook.core.cluster.nodes import Node, Nodes
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.images import NO_IMAGES, ImageConfig, ImageQuery, LookupRules, Unavailable
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.snapshot import Snapshot
from webhook.core.preview.document import DocumentError
from webhook.server.preview.messages import (
    MAX_IMAGES_PER_MESSAGE,
    PIECE_BYTES,
    AnswerPiece,
    BodyPart,
    ClassesPart,
    Finished,
    ImageNeeded,
    ImagesNeeded,
    KnownImage,
    NodesPart,
    PoliciesPart,
    Ready,
    Refused,
    RulesForImages,
    Run,
    ToWorker,
    ViewComplete,
    frame,
)
from webhook.server.preview.worker_channel import (
    MAX_NAMESPACE_CHARACTERS,
    Channel,
    Namespaces,
    UnexpectedMessageError,
)
from webhook.server.preview.worker_run import MAX_IMAGES, PreviewRun, RunImages

MAX_DETAIL_CHARACTERS = 10_000
"""The maximum length of an error message. It quotes names, kinds and keys of the text, which can be
long."""
_WORK_SECONDS = 0.02
"""The CPU time after which the worker pauses. A CPU limit applies to the whole container. When the
container has used up its CPU time, the kernel also stops the server for the rest of a period of
100 ms."""
_PAUSE_SECONDS = 0.01
"""The length of a pause."""


class _Worker:
    """The state of the worker: its view, and the parts that have arrived for the next run."""

    def __init__(self, channel: Channel, memory_bytes: int) -> None:
        self._channel = channel
        self._out_of_memory = frame(
            Refused(
                f"this preview needs more than {memory_bytes >> 20} MiB of memory: send the input "
                "in parts, or use `podsettle preview`, which has no such limit",
                out_of_memory=True,
            )
        )
        self._policies: list[bytes] = []
        self._nodes: list[Node] = []
        self._classes: dict[str, RuntimeClassInfo] = {}
        self._view = Snapshot()
        self._policies_changed = self._nodes_changed = False
        self._body: list[bytes] = []
        self._images: dict[bytes, ImageConfig | Unavailable] = {}

    def handle(self, message: ToWorker) -> None:
        """Process a message of the server."""
        match message:
            case PoliciesPart(first, documents):
                self._policies = [*(() if first else self._policies), *documents]
                self._policies_changed = True
            case NodesPart(first, nodes):
                self._nodes = [*(() if first else self._nodes), *nodes]
                self._nodes_changed = True
            case ClassesPart(first, classes):
                earlier = {} if first else self._classes
                self._classes = earlier | {
                    runtime_class.name: runtime_class for runtime_class in classes
                }
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
                raise UnexpectedMessageError(repr(type(message)))

    def _compile(self, message: ViewComplete) -> None:
        """Build the view from the parts that have arrived."""
        view = replace(
            self._view,
            runtime_classes=self._classes,
            server_version=message.server_version,
            invents_namespaces=message.invents_namespaces,
        )
        if self._policies_changed:
            documents = map(SettlePolicy.model_validate_json, self._policies)
            view = replace(view, policies=PolicySet(documents))
        if self._nodes_changed:
            view = replace(view, nodes=Nodes(self._nodes))
        self._policies_changed = self._nodes_changed = False
        self._policies, self._nodes = [], []
        self._view = view

    def _run(self, run: Run) -> None:
        """Preview the text that has arrived, and send the answer, missing images or a refusal."""
        _limit_cpu(run.cpu_seconds)
        body, known_images = b"".join(self._body), self._images
        self._body, self._images = [], {}
        view = replace(self._view, namespaces=Namespaces(self._channel))
        images = (
            NO_IMAGES if run.images == "None" else RunImages(known_images, run.images == "UseKnown")
        )
        try:
            preview = PreviewRun(run, view, images)
            preview.read(body)
            if preview.missing_images:
                self._request_images(preview.missing_images)
            else:
                self._answer(preview)
            self._channel.send(Finished())
        except (DocumentError, ValueError) as error:
            self._channel.send(Refused(_shorten(str(error))))
        except MemoryError:
            # This message was encoded when the worker started, because there may be no memory now.
            # The server starts a new worker, because this heap is fragmented.
            self._channel.send_frame(self._out_of_memory)
            os._exit(0)

    def _answer(self, preview: PreviewRun) -> None:
        """Send the answer in pieces of PIECE_BYTES."""
        piece = bytearray()
        for part in preview.answer():
            piece += part
            while len(piece) >= PIECE_BYTES:
                self._channel.send(AnswerPiece(bytes(piece[:PIECE_BYTES])))
                del piece[:PIECE_BYTES]
        self._channel.send(AnswerPiece(bytes(piece)))

    def _request_images(self, missing: Mapping[bytes, ImageQuery]) -> None:
        """Ask the server to look images up. Each set of look-up rules is sent only once."""
        rules: dict[LookupRules, int] = {}
        images: list[ImageNeeded] = []
        for key, query in islice(missing.items(), MAX_IMAGES):
            if query.rules not in rules:
                rules[query.rules] = len(rules)
                self._channel.send(RulesForImages(query.rules))
            namespace = query.namespace[:MAX_NAMESPACE_CHARACTERS]
            index = rules[query.rules]
            images.append(ImageNeeded(key, query.image, index, query.architectures, namespace))
        for start in range(0, len(images), MAX_IMAGES_PER_MESSAGE):
            self._channel.send(ImagesNeeded(images[start : start + MAX_IMAGES_PER_MESSAGE]))


def _shorten(detail: str) -> str:
    left_out = len(detail) - MAX_DETAIL_CHARACTERS
    if left_out <= 0:
        return detail
    return f"{detail[:MAX_DETAIL_CHARACTERS]}… and {left_out} more characters"


def _limit_cpu(seconds: int) -> None:
    """Let the kernel end the process after `seconds` more of CPU time.

    The kernel does so even if the server cannot kill the process.
    """
    _set_soft_limit(resource.RLIMIT_CPU, math.ceil(time.process_time()) + seconds)


def _set_soft_limit(kind: int, value: int) -> None:
    """Set a soft limit of this process. It is at most the inherited hard limit."""
    _, hard = resource.getrlimit(kind)
    limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (limit, hard))


def _pause(_signal: int, _frame: FrameType | None) -> None:
    time.sleep(_PAUSE_SECONDS)


def main() -> None:
    """Process messages until the socket is closed. `sys.argv[1]` is the memory limit in bytes."""
    memory_bytes = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # RLIMIT_DATA limits private writable memory: the heap, not memory shared with other processes.
    _set_soft_limit(resource.RLIMIT_DATA, memory_bytes)
    signal.signal(signal.SIGPROF, _pause)
    signal.setitimer(signal.ITIMER_PROF, _WORK_SECONDS, _WORK_SECONDS)
    channel = Channel(socket.socket(fileno=0))
    worker = _Worker(channel, memory_bytes)
    channel.send(Ready())
    while True:
        worker.handle(channel.receive())


if __name__ == "__main__":
    main()
