"""Previews one at a time, in a worker process that is started for them and ended when idle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from webhook.cluster.snapshot import Snapshot
from webhook.core.admission.decide import OperatorSettings
from webhook.core.images import ImageConfig, ImageQuery, Unavailable
from webhook.images.lookup import ImageLookup
from webhook.server.load_shedding import MemoryBudget
from webhook.server.preview.messages import IMAGES_IN_MESSAGE, KnownImage, Run
from webhook.server.preview.worker_client import Needed, PreviewProcess, RunResult, WorkerError

log = logging.getLogger(__name__)

MIB = 1024 * 1024

Result: TypeAlias = Literal[
    "answered", "refused", "deadline", "memory", "crashed", "overloaded", "disconnected"
]


@dataclass(frozen=True, slots=True)
class PreviewLimits:
    """What previews may take."""

    deadline_seconds: float = 10.0
    """For one run of the worker, which is killed then."""
    start_seconds: float = 20.0
    """For a worker to start and to be told the view."""
    queue_seconds: float = 20.0
    """For a preview to wait until the worker is free."""
    max_waiting: int = 8
    """Previews that wait or are at work, each with a body of up to 4 MiB."""
    memory_bytes: int = 128 * MIB
    """Private memory of the worker. 490 pods of Tekton, 4 MiB of JSON, take 77 MiB."""
    answer_bytes: int = 32 * MIB
    """Answers that are made and not sent yet, all together."""
    idle_seconds: float = 60.0
    """After which a worker that has nothing to do is ended."""
    reuse_bytes: int = 256 * 1024
    """Of a text. A longer one leaves a fragmented heap, in which the next may not fit: its worker
    is ended (seen: 125 of 128 MiB for the third list of 490 pods)."""
    image_seconds: float = 10.0
    """For all images of a preview to be looked up."""


DEFAULT_LIMITS = PreviewLimits()


class PreviewError(Exception):
    """A preview that cannot be made: an HTTP status, and a sentence that says what to do."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asks for beside the text."""

    namespace: str | None = None
    namespace_labels: list[str] | None = None
    template_path: str | None = None


class PreviewedText:
    """An answer: JSON in pieces. It counts against the limit until it is released."""

    def __init__(self, budget: MemoryBudget, count: Callable[[Result], None]) -> None:
        self._budget = budget
        self._count = count
        self._held = 0
        self.pieces: list[bytes] = []

    @property
    def _limit_mib(self) -> int:
        return self._budget.limit_bytes // MIB

    @property
    def length(self) -> int:
        """Bytes of all pieces together."""
        return sum(map(len, self.pieces))

    def take(self, count: int) -> None:
        """Count bytes of the answer. Raises PreviewError where it gets too long."""
        self._held += count
        self._budget.used_bytes += count
        if self._held > self._budget.limit_bytes:
            self._count("refused")
            raise PreviewError(
                422, f"the answer is longer than {self._limit_mib} MiB: send it in parts"
            )
        if self._budget.exhausted:
            self._count("overloaded")
            raise PreviewError(503, "answers to other previews are still being sent; try again")

    def release(self) -> None:
        """Keep nothing of it any longer."""
        self.pieces = []
        self._budget.used_bytes -= self._held
        self._held = 0


class Previewer:
    """The queue in front of the worker. The caller closes it.

    It is used on one event loop only; the worker is started by the first preview.
    """

    def __init__(
        self,
        view: Callable[[], Snapshot],
        settings: OperatorSettings,
        images: ImageLookup | None = None,
        limits: PreviewLimits = DEFAULT_LIMITS,
        count: Callable[[Result], None] = lambda _result: None,
    ) -> None:
        """`images` must have no pull secrets: a client may name any namespace in a preview, and
        would learn what its secrets open. `count` is told what became of each preview.
        """
        self._view = view
        self._settings = settings
        self._images = images
        self._limits = limits
        self._count = count
        self._budget = MemoryBudget(limits.answer_bytes)
        self._one_at_a_time = asyncio.Lock()
        self._waiting = 0
        self._starting: asyncio.Task[PreviewProcess] | None = None
        """The worker, from the moment at which it is being started."""
        self._idle: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[Any]] = set()

    async def preview(self, request: Request, body: Sequence[bytes]) -> PreviewedText:
        """The answer to a text in pieces. The caller releases it. Raises PreviewError."""
        if self._waiting >= self._limits.max_waiting:
            self._count("overloaded")
            raise PreviewError(
                503, f"{self._waiting} previews are waiting already; try again in a minute"
            )
        self._waiting += 1
        answer = PreviewedText(self._budget, self._count)
        try:
            answer.pieces = await self._answer(request, body, answer.take)
        except BaseException as error:
            answer.release()
            if isinstance(error, asyncio.CancelledError):
                self._count("disconnected")
            raise
        finally:
            self._waiting -= 1
        self._count("answered")
        return answer

    async def aclose(self) -> None:
        """End the worker, and wait for its end."""
        self._cancel_idle()
        if self._starting is not None:
            self._end(self._starting, kill=True)
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def _answer(
        self, request: Request, body: Sequence[bytes], take: Callable[[int], None]
    ) -> list[bytes]:
        mode: Literal["None", "Ask"] = "None" if self._images is None else "Ask"
        result = await self._run(self._message(request, mode), body, (), take)
        if result.needed and self._images is not None:
            # Not while the worker is held: a registry that does not answer is no other preview's.
            known = await _look_up(self._images, result.needed, self._limits.image_seconds)
            result = await self._run(self._message(request, "Told"), body, known, take)
        if result.refusal is not None:
            self._count("refused")
            raise PreviewError(422, result.refusal)
        return result.pieces

    def _message(self, request: Request, images: Literal["None", "Ask", "Told"]) -> Run:
        return Run(
            self._settings.own_namespace,
            self._settings.linger_image,
            request.namespace,
            request.namespace_labels,
            request.template_path,
            images,
            round(self._limits.deadline_seconds) + 1,
        )

    async def _run(
        self,
        message: Run,
        body: Sequence[bytes],
        images: Sequence[KnownImage],
        take: Callable[[int], None],
    ) -> RunResult:
        async with self._turn(), self._worker() as worker:
            try:
                async with asyncio.timeout(self._limits.deadline_seconds):
                    result = await worker.run(message, body, images, take)
            except TimeoutError:
                self._count("deadline")
                seconds = f"{self._limits.deadline_seconds:g} s"
                log.warning("preview: killed after %s; the text has %d bytes", seconds,
                            sum(map(len, body)))  # fmt: skip
                raise PreviewError(
                    422,
                    f"a preview of this takes longer than {seconds}: send it in parts, or use "
                    "`podsettle preview`, which has no such limit",
                ) from None
            if result.refusal is not None and result.out_of_memory:
                # Raised here, where the worker is held: it is ended, and not used again.
                self._count("memory")
                raise PreviewError(422, result.refusal)
            if self._starting is not None and sum(map(len, body)) > self._limits.reuse_bytes:
                self._end(self._starting, kill=False)
            return result

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Hold the worker alone. Raises PreviewError where that takes too long."""
        try:
            async with asyncio.timeout(self._limits.queue_seconds):
                await self._one_at_a_time.acquire()
        except TimeoutError:
            self._count("overloaded")
            raise PreviewError(503, "other previews take long; try again in a minute") from None
        self._cancel_idle()
        try:
            yield
        finally:
            self._one_at_a_time.release()
            loop = asyncio.get_running_loop()
            self._cancel_idle()
            self._idle = loop.call_later(self._limits.idle_seconds, self._end_idle)

    @asynccontextmanager
    async def _worker(self) -> AsyncIterator[PreviewProcess]:
        """A worker that knows the view; it is ended where the block does not end well."""
        started = self._started()
        in_use = False
        try:
            try:
                # Not cancelled with the request: the next one needs a worker as well.
                worker = await asyncio.shield(started)
                in_use = True
                async with asyncio.timeout(self._limits.start_seconds):
                    await worker.tell_view(self._view())
            except TimeoutError:
                self._count("deadline")
                raise PreviewError(
                    503,
                    f"the process for previews was not ready in {self._limits.start_seconds:g} s: "
                    "the machine has too much to do; try again later",
                ) from None
            yield worker
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and not in_use:
                raise
            ended = self._end(started, kill=True)
            if isinstance(error, WorkerError | OSError):
                await self._report_crash(error, ended)
                raise PreviewError(
                    500,
                    "the process that made the preview ended unexpectedly; try again, and if it "
                    "happens again, send it in parts or use `podsettle preview`",
                ) from None
            raise

    async def _report_crash(self, error: Exception, ended: asyncio.Task[int | None]) -> None:
        self._count("crashed")
        code = await asyncio.shield(ended)
        how = "" if code is None else f" (exit code {code})"
        log.error("preview: the worker process failed: %s%s", error, how)

    def _started(self) -> asyncio.Task[PreviewProcess]:
        """The worker that there is, else a new one."""
        task = self._starting
        if task is not None and task.done() and not _is_alive(task):
            # Killed while it was idle, by the kernel for example.
            self._end(task, kill=True)
            task = None
        if task is None or self._starting is None:
            memory_bytes, seconds = self._limits.memory_bytes, self._limits.start_seconds
            task = asyncio.create_task(PreviewProcess.start(memory_bytes, seconds))
            self._starting = task
        return task

    def _end(
        self, started: asyncio.Task[PreviewProcess], *, kill: bool
    ) -> asyncio.Task[int | None]:
        """End a worker beside what goes on; the next preview gets a new one."""
        if self._starting is started:
            self._starting = None
        ending = asyncio.create_task(_close(started, kill=kill))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        return ending

    def _cancel_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _end_idle(self) -> None:
        if self._starting is not None and not self._one_at_a_time.locked():
            self._end(self._starting, kill=False)


def _is_alive(task: asyncio.Task[PreviewProcess]) -> bool:
    return not task.cancelled() and task.exception() is None and task.result().alive


async def _close(started: asyncio.Task[PreviewProcess], *, kill: bool) -> int | None:
    """The exit code of a worker that is ended; None where it never started."""
    try:
        worker = await started
    except (WorkerError, OSError):  # TimeoutError is an OSError.
        return None
    return await worker.close(kill=kill)


async def _look_up(
    images: ImageLookup, needed: Sequence[Needed], seconds: float
) -> list[KnownImage]:
    """What is known of images, some at a time: a task for each of hundreds would stall the loop."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    found: dict[ImageQuery, ImageConfig | Unavailable] = {}
    for start in range(0, len(needed), IMAGES_IN_MESSAGE):
        batch = [each.query for each in needed[start : start + IMAGES_IN_MESSAGE]]
        left = until - loop.time()
        if left <= 0:
            break
        found |= await images.find(batch, left, most=None)
    late = Unavailable(f"the registries did not answer within {seconds:g} s")
    return [_known(each.key, found.get(each.query, late)) for each in needed]


def _known(key: bytes, found: ImageConfig | Unavailable) -> KnownImage:
    if isinstance(found, Unavailable):
        return KnownImage(key, unavailable=found.why)
    return KnownImage(key, found.entrypoint, found.cmd)
