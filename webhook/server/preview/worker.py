"""The worker process of a preview: `python -m webhook.server.preview.worker MEMORY CPU`.

It reads text from a client, and renders decisions. Both take so long that they would delay reviews.
It knows nothing of the cluster, and decides nothing: see `frames`. The process makes one preview
and ends. It has limits on memory and CPU time, and a lower priority. The server kills it after a
deadline. It ends when the server does, even while it is busy.

It starts for each preview, so it imports little: neither pydantic, unless the text contains a
policy, nor what decides.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from types import FrameType
from typing import TYPE_CHECKING, BinaryIO

from msgspec import Raw

from webhook.core.constants import KIND
from webhook.core.preview.document import Document, DocumentError
from webhook.core.preview.list_items import find_objects
from webhook.core.preview.object_without_pod import ObjectWithoutPod, render_passed_over
from webhook.core.preview.pod_before_and_after import patched, render_pod
from webhook.core.preview.pods_in_document import PassedOver, Workload, pods_of
from webhook.core.preview.yaml_documents import load_documents
from webhook.server.preview.frames import (
    HEADER_BYTES,
    MAX_OBJECTS_WITHOUT_POD,
    MAX_PODS,
    MAX_POLICIES,
    MAX_POLICIES_BYTES,
    MAX_POLICY_BYTES,
    OUT_OF_MEMORY_EXIT_CODE,
    PodFound,
    PolicyFound,
    Refused,
    TextRead,
    decode_decided,
    decode_input,
    encode,
    header,
)

if TYPE_CHECKING:
    from webhook.core.policy.model import SettlePolicy

MAX_ERROR_LINES = 20
"""The maximum number of lines in an error that lists objects without a pod."""
MAX_DETAIL_CHARACTERS = 10_000
"""The maximum length of an error message. It quotes names, kinds and keys of the text, which can be
long."""
_WORK_SECONDS = 0.02
"""The CPU time after which the worker pauses. A CPU limit applies to the whole container. When the
container has used up its CPU time, the kernel also stops the server for the rest of a period of
100 ms."""
_PAUSE_SECONDS = 0.01
"""The length of a pause."""


class _Text:
    """The pods of a text, its policies, and the objects without a pod."""

    def __init__(self, body: bytes, template_path: str | None) -> None:
        """Raise DocumentError or ValueError for a text that is refused."""
        self.pods: list[Workload] = []
        self.unreadable: list[ObjectWithoutPod] = []
        self.passed_over: list[ObjectWithoutPod] = []
        documents = load_documents(body, "body")
        if not documents:
            raise ValueError(
                "the body is empty or has only comments: send a Pod or a workload; "
                "with curl, use --data-binary, because --data removes line ends"
            )
        self.policies = _policies_in(documents)
        for document in documents:
            for found in pods_of(document.value, template_path):
                if isinstance(found, PassedOver):
                    self._add_without_pod(found, document)
                    continue
                self.pods.append(found)
                if len(self.pods) > MAX_PODS:
                    raise ValueError(f"more than {MAX_PODS} pods: send them in parts")
        if not self.pods:
            raise ValueError(self._no_pod_message())

    def _add_without_pod(self, found: PassedOver, document: Document) -> None:
        without_pod = self.unreadable if found.malformed else self.passed_over
        without_pod.append(render_passed_over(found, document))
        if len(self.unreadable) + len(self.passed_over) > MAX_OBJECTS_WITHOUT_POD:
            raise ValueError(
                f"more than {MAX_OBJECTS_WITHOUT_POD} objects without a pod: send them in parts"
            )

    def _no_pod_message(self) -> str:
        objects = [*self.unreadable, *self.passed_over]
        lines = [str(without_pod) for without_pod in objects[:MAX_ERROR_LINES]]
        if len(objects) > len(lines):
            lines.append(f"and {len(objects) - len(lines)} more objects without a pod")
        return "\n".join(lines) or "the list is empty: there is no pod in it"


def _policies_in(documents: list[Document]) -> list[bytes]:
    """Return the valid policies as JSON. Raises ValueError if they are too many or too long."""
    if not any(
        isinstance(found.value, dict) and found.value.get("kind") == KIND
        for document in documents
        for found in find_objects(document.value)
    ):
        return []
    from webhook.core.preview.policies import policies_in

    policies: dict[str, SettlePolicy] = {}
    for document in reversed(documents):  # Of two policies with one name, the first counts.
        policies |= policies_in(document.value)
    if len(policies) > MAX_POLICIES:
        raise ValueError(f"more than {MAX_POLICIES} policies: send fewer of them")
    texts = []
    for name, policy in policies.items():
        text = policy.model_dump_json(by_alias=True, exclude_unset=True).encode()
        if len(text) > MAX_POLICY_BYTES:
            raise ValueError(
                f"SettlePolicy/{name} is longer than {MAX_POLICY_BYTES >> 10} KiB as JSON: use "
                "`podsettle preview`, which has no such limit"
            )
        texts.append(text)
    if sum(map(len, texts)) > MAX_POLICIES_BYTES:
        raise ValueError(
            f"the policies are longer than {MAX_POLICIES_BYTES >> 10} KiB as JSON: send fewer of "
            "them"
        )
    return texts


class _Channel:
    """The channel to the server. The end of the input ends the process."""

    def __init__(self, source: BinaryIO, target: BinaryIO) -> None:
        self._source = source
        self._target = target

    def send(self, *pieces: bytes) -> None:
        """Send a frame that consists of these pieces."""
        self._target.write(header(sum(map(len, pieces))))
        for piece in pieces:
            self._target.write(piece)
        self._target.flush()

    def receive(self) -> bytes:
        """Return the next frame."""
        return self._read(int.from_bytes(self._read(HEADER_BYTES), "big"))

    def _read(self, length: int) -> bytes:
        data = self._source.read(length)
        if len(data) < length:
            os._exit(0)  # The server has ended.
        return data


def _preview(channel: _Channel) -> None:
    """Make one preview."""
    template_path = decode_input(channel.receive()).template_path
    try:
        text = _Text(channel.receive(), template_path)
    except (DocumentError, ValueError) as error:
        channel.send(encode(Refused(_shorten(str(error)))))
        return
    for policy in text.policies:
        channel.send(encode(PolicyFound(Raw(policy))))
    for workload in text.pods:
        channel.send(encode(PodFound(workload.namespace, Raw(encode(workload.created_pod)))))
    channel.send(encode(TextRead()))
    for index, workload in enumerate(text.pods):
        decided = decode_decided(channel.receive())
        shown, decision = workload.with_spec_fields(decided.class_fields), decided.rendered
        after = patched(shown.pod, decision["patch"])
        channel.send(b"," if index else b'{"pods":[', encode(render_pod(shown, decision, after)))
    passed_over, unreadable = encode(text.passed_over), encode(text.unreadable)
    channel.send(b'],"passedOver":', passed_over, b',"unreadable":', unreadable, b"}")


def _shorten(detail: str) -> str:
    left_out = len(detail) - MAX_DETAIL_CHARACTERS
    if left_out <= 0:
        return detail
    return f"{detail[:MAX_DETAIL_CHARACTERS]}… and {left_out} more characters"


def _set_soft_limit(kind: int, value: int) -> None:
    """Set a soft limit of this process. It is at most the inherited hard limit."""
    _, hard = resource.getrlimit(kind)
    limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (limit, hard))


def main() -> None:
    """Make one preview. `sys.argv` has the limits: bytes of memory, and seconds of CPU time."""
    memory_bytes, cpu_seconds = map(int, sys.argv[1:])
    server = os.getppid()

    def pause(_signal: int, _frame: FrameType | None) -> None:
        if os.getppid() != server:
            os._exit(0)  # The server has ended.
        time.sleep(_PAUSE_SECONDS)

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # RLIMIT_DATA limits private writable memory: the heap, not memory shared with other processes.
    _set_soft_limit(resource.RLIMIT_DATA, memory_bytes)
    # The kernel ends the process even if the server cannot kill it.
    _set_soft_limit(resource.RLIMIT_CPU, cpu_seconds)
    signal.signal(signal.SIGPROF, pause)
    signal.setitimer(signal.ITIMER_PROF, _WORK_SECONDS, _WORK_SECONDS)
    channel = _Channel(sys.stdin.buffer, sys.stdout.buffer)  # noqa: TID251 (pipes of the server)
    try:
        channel.send()  # The process has started.
        _preview(channel)
    except BrokenPipeError:
        pass  # The server has ended.
    except MemoryError:
        os._exit(OUT_OF_MEMORY_EXIT_CODE)
    # The server waits for this end, and the interpreter would take milliseconds to free its memory.
    os._exit(0)


if __name__ == "__main__":
    main()
