"""The making of previews, one at a time, each with a worker process of its own.

The function that decides on pods for /mutate decides on those of a preview, one at a time between
reviews. The worker does all work on text.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

import msgspec
from fastapi import HTTPException

from webhook.core.admission.decider import OperatorSettings
from webhook.core.images import NO_IMAGES, ImageQuery, KnownImages, Unavailable
from webhook.core.labels import Labels
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.snapshot import Snapshot
from webhook.core.preview.pod_decider import DEFAULT_NAMESPACE, PodDecider, PodDecision
from webhook.images.lookup import ImageLookup
from webhook.server.limits import MIB, PreviewLimits
from webhook.server.metrics import PreviewResult
from webhook.server.preview.worker import OUT_OF_MEMORY_EXIT_CODE, Found

MAX_IMAGES = 50  # Of all pods of a preview together.
log = logging.getLogger(__name__)

_RULES_NOT_IN_FORCE = Unavailable(
    "the image was not looked up: no policy in force has this imageConfig, and a preview on the "
    "server asks no other registries; `podsettle preview --look-up-images` does"
)


class PreviewError(HTTPException):
    """An HTTP error for a preview, with a sentence that says what to do."""

    def __init__(self, result: PreviewResult, status: int, detail: str) -> None:
        super().__init__(status, detail, {"Retry-After": "5"} if status == 429 else None)
        self.result = result


def above_limit(status: int, problem: str, result: PreviewResult = "refused") -> PreviewError:
    """Return the error for a preview that exceeds a limit of the server."""
    return PreviewError(result, status, f"{problem}: use `podsettle preview`, which has no limit")


@dataclass(slots=True)
class Previewer:
    """Makes previews. `images` must have no pull secrets: see `look_up_images`."""

    view: Callable[[], Snapshot]
    settings: OperatorSettings
    images: ImageLookup | None
    limits: PreviewLimits
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _worker: subprocess.Popen[bytes] | None = field(default=None, init=False)

    async def preview(
        self, body: bytes, namespace: str | None, labels: Labels | None, template_path: str | None
    ) -> bytes:
        """Return the answer as JSON, for a namespace with labels if given. Raises PreviewError."""
        limits = self.limits
        kib, mib = limits.policies_bytes // 1024, limits.answer_bytes // MIB
        try:
            async with asyncio.timeout(limits.queue_seconds):
                await self._turn.acquire()
        except TimeoutError:
            raise PreviewError("overloaded", 429, "another preview takes long; try again") from None
        try:
            async with asyncio.timeout(limits.deadline_seconds), self._worker_process() as ask:
                found = msgspec.json.decode(await ask((body, template_path)), type=Found)
                if found.refused:
                    raise PreviewError("refused", 422, found.refused)
                if len(found.pods) > limits.max_pods:
                    raise above_limit(413, f"more than {limits.max_pods} pods")
                if sum(map(len, found.policies)) > limits.policies_bytes:
                    raise above_limit(413, f"the policies are longer than {kib} KiB as JSON")
                return await ask(await self._decide(found, namespace, labels))
        except TimeoutError:
            problem = f"this preview takes longer than {limits.deadline_seconds:g} s"
            raise above_limit(422, problem, "deadline") from None
        except asyncio.LimitOverrunError:
            raise above_limit(413, f"the answer is longer than {mib} MiB") from None
        except (OSError, EOFError, ValueError, RecursionError) as error:
            # The worker has ended, or has sent what it must not send.
            code = None if self._worker is None else self._worker.returncode
            if code == OUT_OF_MEMORY_EXIT_CODE:
                problem = f"this preview needs more than {limits.memory_bytes // MIB} MiB of memory"
                raise above_limit(422, problem, "memory") from None
            log.error("preview: the worker process failed: %s (exit code %s)", error, code)
            raise above_limit(500, "the preview process ended unexpectedly", "crashed") from None
        finally:
            self._turn.release()

    async def _decide(
        self, found: Found, namespace: str | None, labels: Labels | None
    ) -> list[msgspec.Raw]:
        """Return the decisions on the pods. Between two of them, reviews are answered."""
        view, documents = self.view(), []
        for text in found.policies:
            documents.append(SettlePolicy.model_validate_json(bytes(text)))
            await asyncio.sleep(0)
        seen = replace(view, policies=view.policies.replaced(documents)) if documents else view
        decider = PodDecider(seen, self.settings, namespace_labels=labels)

        async def decide(images: KnownImages) -> AsyncIterator[PodDecision]:
            for namespace_found, pod in found.pods:
                yield decider.decide(pod, namespace or namespace_found or DEFAULT_NAMESPACE, images)
                await asyncio.sleep(0)

        known, seconds = NO_IMAGES, self.limits.image_seconds
        missing = [query async for each in decide(known) for query in each.decision.missing_images]
        if missing and self.images is not None:
            known = await look_up_images(self.images, missing, view, seconds)
        return [
            msgspec.Raw(msgspec.json.encode((decided.class_fields, decided.render())))
            async for decided in decide(known)
        ]

    @asynccontextmanager
    async def _worker_process(self) -> AsyncIterator[Callable[[object], Awaitable[bytes]]]:
        """Start a worker, and kill it at the end of the block. Raises OSError.

        Yields a function that sends a message to the worker and returns its answer. It raises
        EOFError if the worker ends, and LimitOverrunError if the answer is too long.
        """
        limits, self._worker = self.limits, None
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=limits.answer_bytes)

        async def ask(message: object) -> bytes:
            writer.write(msgspec.json.encode(message) + b"\n")
            await writer.drain()
            return await reader.readuntil(b"\n")

        # With asyncio.create_subprocess_exec, uvloop forks, and reviews would wait 12 ms while the
        # kernel copies the server's page tables.
        spawned = asyncio.create_task(asyncio.to_thread(_spawn, theirs, limits))
        try:
            self._worker = await asyncio.shield(spawned)
            yield ask
        finally:
            writer.close()
            # This may be a cancellation while the thread was starting the worker.
            await asyncio.shield(_end(spawned))


async def look_up_images(
    images: ImageLookup, missing: list[ImageQuery], view: Snapshot, seconds: float
) -> KnownImages:
    """Return a result for each query within `seconds`.

    The author of a text with policies could choose the registries, to which the server would send
    requests from inside the cluster (SSRF). So only the look-up rules of policies in force count.
    A client can name any namespace, and could read images with the pull secrets of that namespace,
    and use up its share of the look-ups. So look-ups have none, and all previews have one share.
    """
    rules = {document.spec.image_config.rules for document in view.policies.documents}
    plain = {query: ImageQuery(query.image, query.rules, query.architectures) for query in missing}
    allowed = [query for query in plain.values() if query.rules in rules]
    # Hundreds of concurrent tasks would block the event loop.
    found = await images.find(allowed, seconds, max_images=MAX_IMAGES)
    return {query: found.get(each, _RULES_NOT_IN_FORCE) for query, each in plain.items()}


def _spawn(connection: socket.socket, limits: PreviewLimits) -> subprocess.Popen[bytes]:
    """Start a new interpreter, not a copy of this process. Raises OSError."""
    values = map(str, (limits.memory_bytes, round(limits.deadline_seconds) + 1))
    with connection:
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", "-m", "webhook.server.preview.worker", *values],
            stdin=connection.fileno(),
            stdout=connection.fileno(),
            # Ctrl-C in a terminal then reaches only the server, which ends the worker.
            process_group=0,
        )
    # With 19 always, the worker would not start in time beside others with niceness 0.
    os.setpriority(os.PRIO_PROCESS, process.pid, max(10, os.getpriority(os.PRIO_PROCESS, 0) + 1))
    return process


async def _end(spawned: Awaitable[subprocess.Popen[bytes]]) -> None:
    """Kill the worker once it has been started, and wait until it has ended."""
    with suppress(OSError):
        worker = await spawned
        worker.kill()
        await asyncio.to_thread(worker.wait)
