"""The worker process of a preview: `python -m webhook.server.preview.worker MEMORY CPU`.

It reads text from a client, and renders decisions, which takes so long that it would delay reviews,
in a thread too. It knows nothing of the cluster. It answers two lines of JSON: the text and the
template path with a Found, and then each pod's class fields and decision with the whole answer.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw

from webhook.core.preview.document import DocumentError
from webhook.core.preview.pods_in_document import ObjectWithoutPod, Workload, pods_of
from webhook.core.preview.yaml_documents import load_documents

OUT_OF_MEMORY_EXIT_CODE = 3
"""The exit code at the memory limit. The worker may then not have the memory for an answer."""
_MAX_ERROR_LINES, _MAX_DETAIL_CHARACTERS = 20, 10_000
_WORK_SECONDS, _PAUSE_SECONDS = 0.02, 0.01
"""The CPU time after which the worker pauses, and for how long. When a container has used up its
CPU limit, the kernel also stops the server, for the rest of a period of 100 ms."""


class Found(msgspec.Struct):
    """What a text contains, or why it is refused: each pod with the namespace in its document."""

    pods: list[tuple[str | None, Raw]] = []
    policies: list[Raw] = []
    refused: str = ""


class _Text:
    """The pods of a text, its policies, and the objects without a pod."""

    def __init__(self, body: bytes, template_path: str | None) -> None:
        """Raise DocumentError and ValueError for a text that is refused."""
        self.pods: list[Workload] = []
        self.unreadable: list[ObjectWithoutPod] = []
        self.passed_over: list[ObjectWithoutPod] = []
        self.policies: dict[str, bytes] = {}
        documents = load_documents(body, "body")
        if not documents:
            raise ValueError(
                "the body is empty or has only comments: send a Pod or a workload; with curl, use "
                "--data-binary, because --data removes line ends"
            )
        for document in documents:
            for found in pods_of(document, template_path):
                if isinstance(found, Workload):
                    self.pods.append(found)
                    continue
                without_pod = self.unreadable if found.malformed else self.passed_over
                without_pod.append(found.shown)
                if found.policy is not None:  # Of two policies with one name, the first counts.
                    text = found.policy.model_dump_json(by_alias=True, exclude_unset=True)
                    self.policies.setdefault(found.shown.name, text.encode())
        if not self.pods:
            objects = [*self.unreadable, *self.passed_over]
            lines = list(map(str, objects[:_MAX_ERROR_LINES]))
            if len(objects) > len(lines):
                lines.append(f"and {len(objects) - len(lines)} more objects without a pod")
            raise ValueError("\n".join(lines) or "the list is empty: there is no pod in it")

    def render(self, decisions: list[tuple[dict[str, Any], dict[str, Any]]]) -> object:
        """Return the answer to the client."""
        # The server imports this module.
        from webhook.core.preview.pod_before_and_after import patched, render_pod

        pods = []
        for workload, (class_fields, decision) in zip(self.pods, decisions, strict=True):
            shown = workload.with_spec_fields(class_fields)
            pods.append(render_pod(shown, decision, patched(shown.pod, decision["patch"])))
        return {"pods": pods, "passedOver": self.passed_over, "unreadable": self.unreadable}


def _answers() -> Iterator[object]:
    """Yield the answers. The input ends early if the server has ended or refuses the preview."""
    if not (line := sys.stdin.buffer.readline()):
        return
    try:
        text = _Text(*msgspec.json.decode(line, type=tuple[bytes, str | None]))
    except (DocumentError, ValueError) as error:
        yield Found(refused=str(error)[:_MAX_DETAIL_CHARACTERS])
        return
    pods = [(each.namespace, Raw(msgspec.json.encode(each.created_pod))) for each in text.pods]
    yield Found(pods, list(map(Raw, text.policies.values())))
    if line := sys.stdin.buffer.readline():
        yield text.render(msgspec.json.decode(line))


def main() -> None:
    """Make one preview. `sys.argv` has the limits: bytes of memory, and seconds of CPU time."""
    memory_bytes, cpu_seconds = map(int, sys.argv[1:])
    # RLIMIT_DATA limits private writable memory: the heap, not memory shared with other processes.
    # RLIMIT_CPU ends a busy worker whose server has ended.
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_DATA: memory_bytes}
    for kind, limit in (limits | {resource.RLIMIT_CPU: cpu_seconds}).items():
        with suppress(ValueError):  # The inherited limit is lower.
            resource.setrlimit(kind, (limit, limit))
    signal.signal(signal.SIGPROF, lambda _signal, _frame: time.sleep(_PAUSE_SECONDS))
    signal.setitimer(signal.ITIMER_PROF, _WORK_SECONDS, _WORK_SECONDS)
    target = sys.stdout.buffer  # noqa: TID251 (a pipe of the server)
    try:
        for answer in _answers():
            target.write(msgspec.json.encode(answer) + b"\n")
            target.flush()
    except MemoryError:
        os._exit(OUT_OF_MEMORY_EXIT_CODE)
    os._exit(0)  # The end of the interpreter takes milliseconds.


if __name__ == "__main__":
    main()
