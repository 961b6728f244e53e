"""The queue of previews. One preview is made at a time, each with a worker process of its own.

A preview is a review that a person asks for: the function that decides on pods for /mutate decides
on those of a preview, in this process, one at a time between reviews (`preview_run`). The worker
process does all work on text.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from webhook.core.admission.decider import OperatorSettings
from webhook.core.images import ImageResolver
from webhook.core.policy.snapshot import Snapshot
from webhook.process_memory import malloc_trim
from webhook.server.limits import MIB, PreviewLimits
from webhook.server.metric_labels import PreviewResult
from webhook.server.preview.answer_memory import PreviewAnswerText, PreviewError
from webhook.server.preview.frames import OUT_OF_MEMORY_EXIT_CODE
from webhook.server.preview.preview_run import PreviewOptions, PreviewRun
from webhook.server.preview.worker_process import WorkerError, WorkerProcess
from webhook.server.reviews.load_shedding import MemoryBudget

log = logging.getLogger(__name__)

_DEFAULT_LIMITS = PreviewLimits()


class Previewer:
    """A queue of previews. The caller closes it. Use it on one event loop only."""

    def __init__(
        self,
        view: Callable[[], Snapshot],
        settings: OperatorSettings,
        images: ImageResolver | None = None,
        limits: PreviewLimits = _DEFAULT_LIMITS,
        count: Callable[[PreviewResult], None] = lambda _result: None,
    ) -> None:
        """`count` is called with the result of each preview.

        `images` must have no pull secrets: see `image_lookups`.
        """
        self._view = view
        self._settings = settings
        self._images = images
        self._limits = limits
        self._count = count
        self._budget = MemoryBudget(limits.answer_bytes)
        self._worker_lock = asyncio.Lock()
        self._waiting_count = 0
        self._running: WorkerProcess | None = None

    async def preview(self, options: PreviewOptions, body: list[bytes]) -> PreviewAnswerText:
        """Return the answer. The caller must release it. Raises PreviewError.

        The body is empty afterwards. Otherwise the frames that an exception refers to would keep
        its megabytes until a garbage collection.
        """
        try:
            answer = await self._preview(options, body)
        except PreviewError as error:
            self._count(error.result)
            raise
        except asyncio.CancelledError:
            self._count("disconnected")
            raise
        self._count("answered")
        return answer

    async def aclose(self) -> None:
        """Kill the worker, and wait until it has ended."""
        if self._running is not None:
            await self._running.end(kill=True)

    async def _preview(self, options: PreviewOptions, body: list[bytes]) -> PreviewAnswerText:
        """Return the answer. Raises as `preview` does."""
        if self._waiting_count >= self._limits.max_pending:
            detail = f"{self._waiting_count} previews are already waiting; try again in a minute"
            raise PreviewError("overloaded", 503, detail)
        self._waiting_count += 1
        answer = PreviewAnswerText(self._budget)
        try:
            try:
                async with self._exclusive(), self._worker() as worker:
                    await self._make(worker, options, body, answer)
            finally:
                body.clear()
                self._waiting_count -= 1
                # Decisions that end in between reviews leave holes in the heap.
                await asyncio.to_thread(malloc_trim)
        except BaseException:
            answer.release()
            raise
        return answer

    @asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[None]:
        """Wait until no other preview is made. Raises PreviewError after a timeout."""
        try:
            async with asyncio.timeout(self._limits.queue_seconds):
                await self._worker_lock.acquire()
        except TimeoutError:
            detail = "other previews take too long; try again in a minute"
            raise PreviewError("overloaded", 503, detail) from None
        try:
            yield
        finally:
            self._worker_lock.release()

    @asynccontextmanager
    async def _worker(self) -> AsyncIterator[WorkerProcess]:
        """Yield a worker that has started. It has ended when the block has."""
        cpu_seconds = round(self._limits.deadline_seconds) + 1
        try:
            worker = await WorkerProcess.start(self._limits.memory_bytes, cpu_seconds)
        except OSError as error:
            raise self._crashed(f"it cannot be started: {error}") from None
        self._running = worker
        try:
            await self._wait_for_start(worker)
            yield worker
        except WorkerError as error:
            code = await worker.end(kill=False)
            if code == OUT_OF_MEMORY_EXIT_CODE:
                raise PreviewError(
                    "memory",
                    422,
                    f"this preview needs more than {self._limits.memory_bytes // MIB} MiB of "
                    "memory: send the input in parts, or use `podsettle preview`, which has no "
                    "such limit",
                ) from None
            raise self._crashed(f"{error} (exit code {code})") from None
        except BaseException:
            await worker.end(kill=True)
            raise
        else:
            await worker.end(kill=False)
        finally:
            self._running = None

    async def _wait_for_start(self, worker: WorkerProcess) -> None:
        """Wait for the first frame of a worker. Raises WorkerError and PreviewError."""
        try:
            async with asyncio.timeout(self._limits.start_seconds):
                await worker.receive(_expect_empty)
        except TimeoutError:
            raise PreviewError(
                "deadline",
                503,
                f"the preview process was not ready within {self._limits.start_seconds:g} s: "
                "the machine is overloaded; try again later",
            ) from None

    def _crashed(self, problem: str) -> PreviewError:
        """Log a failed worker, and return its error."""
        log.error("preview: the worker process failed: %s", problem)
        return PreviewError(
            "crashed",
            500,
            "the preview process ended unexpectedly; try again, and if this happens "
            "again, send the input in parts or use `podsettle preview`",
        )

    async def _make(
        self,
        worker: WorkerProcess,
        options: PreviewOptions,
        body: list[bytes],
        answer: PreviewAnswerText,
    ) -> None:
        """Make a preview within the deadline. Raises PreviewError and WorkerError."""
        byte_count = sum(map(len, body))
        run = PreviewRun(worker, options, self._view, self._settings, self._images, self._limits)
        try:
            async with asyncio.timeout(self._limits.deadline_seconds) as deadline:
                await run.make(body, answer, deadline)
        except TimeoutError:
            limit = f"{self._limits.deadline_seconds:g} s"
            log.warning(
                "preview: worker killed after %s; the input has %d bytes", limit, byte_count
            )
            raise PreviewError(
                "deadline",
                422,
                f"this preview takes longer than {limit}: send the input in parts, or use "
                "`podsettle preview`, which has no such limit",
            ) from None


def _expect_empty(byte_count: int) -> None:
    if byte_count:
        raise WorkerError("its first frame is not empty")
