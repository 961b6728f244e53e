"""The queue of previews. One worker process makes them, one at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from webhook.core.admission.decider import OperatorSettings
from webhook.core.images import ImageResolver
from webhook.core.policy.snapshot import Snapshot
from webhook.server.limits import PreviewLimits
from webhook.server.metric_labels import PreviewResult
from webhook.server.preview.answer import PreviewAnswerText, PreviewError
from webhook.server.preview.image_lookups import look_up_images
from webhook.server.preview.messages import KnownImage, Run
from webhook.server.preview.worker_client import PreviewProcess, RunResult, WorkerError
from webhook.server.reviews.load_shedding import MemoryBudget

log = logging.getLogger(__name__)

_DEFAULT_LIMITS = PreviewLimits()


@dataclass(frozen=True, slots=True)
class PreviewOptions:
    """The query parameters of a preview."""

    namespace: str | None = None
    namespace_labels: list[str] | None = None
    template_path: str | None = None


class Previewer:
    """A queue of previews for the worker, which this class also starts and ends.

    The caller closes the Previewer. Use it on one event loop only. The first preview starts the
    worker.
    """

    def __init__(
        self,
        view: Callable[[], Snapshot],
        settings: OperatorSettings,
        images: ImageResolver | None = None,
        limits: PreviewLimits = _DEFAULT_LIMITS,
        count: Callable[[PreviewResult], None] = lambda _result: None,
    ) -> None:
        """`count` is called with the result of each preview.

        `images` must have no pull secrets. A client can name any namespace in a preview, and could
        otherwise read images with the pull secrets of that namespace.
        """
        self._view = view
        self._settings = settings
        self._images = images
        self._limits = limits
        self._count = count
        self._budget = MemoryBudget(limits.answer_bytes)
        self._worker_lock = asyncio.Lock()
        self._waiting_count = 0
        self._worker_start: asyncio.Task[PreviewProcess] | None = None
        """The start of the current worker. Its result is the worker."""
        self._idle_timer: asyncio.TimerHandle | None = None
        self._ending_tasks: set[asyncio.Task[Any]] = set()

    async def preview(self, options: PreviewOptions, body: Sequence[bytes]) -> PreviewAnswerText:
        """Return the answer. The caller must release it. Raises PreviewError."""
        if self._waiting_count >= self._limits.max_pending:
            self._count("overloaded")
            raise PreviewError(
                503, f"{self._waiting_count} previews are already waiting; try again in a minute"
            )
        self._waiting_count += 1
        answer = PreviewAnswerText(self._budget, self._count)
        try:
            answer.pieces = await self._answer(options, body, answer.reserve)
        except BaseException as error:
            answer.release()
            if isinstance(error, asyncio.CancelledError):
                self._count("disconnected")
            raise
        finally:
            self._waiting_count -= 1
        self._count("answered")
        return answer

    async def aclose(self) -> None:
        """Kill the worker, and wait until it has ended."""
        self._cancel_idle_timer()
        if self._worker_start is not None:
            self._end(self._worker_start, kill=True)
        await asyncio.gather(*self._ending_tasks, return_exceptions=True)

    async def _answer(
        self, options: PreviewOptions, body: Sequence[bytes], reserve: Callable[[int], None]
    ) -> list[bytes]:
        """Return the answer. If it needs images, look them up and run the worker a second time."""
        body_bytes = sum(map(len, body))
        mode: Literal["None", "Ask"] = "None" if self._images is None else "Ask"
        result = await self._run(
            self._make_run_message(options, mode), body, body_bytes, (), reserve
        )
        if result.missing_images and self._images is not None:
            # The worker can run other previews during the look-ups, so that a slow registry does
            # not delay them.
            seconds = self._limits.image_seconds
            known_images = await look_up_images(
                self._images, result.missing_images, self._view().policies, seconds
            )
            result = await self._run(
                self._make_run_message(options, "UseKnown"), body, body_bytes, known_images, reserve
            )
        if result.refusal is not None:
            self._count("refused")
            raise PreviewError(422, result.refusal)
        return result.pieces

    def _make_run_message(
        self, options: PreviewOptions, images: Literal["None", "Ask", "UseKnown"]
    ) -> Run:
        """Return the message that asks the worker for a preview."""
        return Run(
            self._settings.own_namespace,
            self._settings.linger_image,
            options.namespace,
            options.namespace_labels,
            options.template_path,
            images,
            round(self._limits.deadline_seconds) + 1,
            self._settings.docs_url,
        )

    async def _run(
        self,
        message: Run,
        body: Sequence[bytes],
        body_bytes: int,
        images: Sequence[KnownImage],
        reserve: Callable[[int], None],
    ) -> RunResult:
        """Run the worker once. Raises PreviewError."""
        async with self._exclusive(), self._worker() as worker:
            try:
                async with asyncio.timeout(self._limits.deadline_seconds):
                    result = await worker.run(message, body, images, reserve)
            except TimeoutError:
                self._count("deadline")
                limit = f"{self._limits.deadline_seconds:g} s"
                log.warning(
                    "preview: worker killed after %s; the input has %d bytes", limit, body_bytes
                )
                raise PreviewError(
                    422,
                    f"this preview takes longer than {limit}: send the input in parts, or use "
                    "`podsettle preview`, which has no such limit",
                ) from None
            if result.refusal is not None and result.out_of_memory:
                # Raised inside the block, which then kills the worker, because its heap is
                # exhausted.
                self._count("memory")
                raise PreviewError(422, result.refusal)
            if self._worker_start is not None and body_bytes > self._limits.reuse_bytes:
                self._end(self._worker_start, kill=False)
            return result

    @asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[None]:
        """Wait until no other preview uses the worker. Raises PreviewError after a timeout."""
        try:
            async with asyncio.timeout(self._limits.queue_seconds):
                await self._worker_lock.acquire()
        except TimeoutError:
            self._count("overloaded")
            raise PreviewError(503, "other previews take too long; try again in a minute") from None
        self._cancel_idle_timer()
        try:
            yield
        finally:
            self._worker_lock.release()
            loop = asyncio.get_running_loop()
            self._cancel_idle_timer()
            self._idle_timer = loop.call_later(self._limits.idle_seconds, self._end_idle)

    @asynccontextmanager
    async def _worker(self) -> AsyncIterator[PreviewProcess]:
        """Yield a worker with the current view. If the block raises, the worker is killed."""
        worker_start = self._current_or_new()
        in_use = False
        try:
            try:
                # A cancelled request does not cancel the start, because the next request needs a
                # worker too.
                worker = await asyncio.shield(worker_start)
                in_use = True
                async with asyncio.timeout(self._limits.start_seconds):
                    await worker.send_view(self._view())
            except TimeoutError:
                self._count("deadline")
                raise PreviewError(
                    503,
                    f"the preview process was not ready within {self._limits.start_seconds:g} s: "
                    "the machine is overloaded; try again later",
                ) from None
            yield worker
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and not in_use:
                raise
            exit_task = self._end(worker_start, kill=True)
            if isinstance(error, WorkerError | OSError):
                await self._report_crash(error, exit_task)
                raise PreviewError(
                    500,
                    "the preview process ended unexpectedly; try again, and if this happens "
                    "again, send the input in parts or use `podsettle preview`",
                ) from None
            raise

    async def _report_crash(self, error: Exception, exit_task: asyncio.Task[int | None]) -> None:
        """Log the error and the exit code of the worker, when the worker has ended."""
        self._count("crashed")
        code = await asyncio.shield(exit_task)
        exit_code = "" if code is None else f" (exit code {code})"
        log.error("preview: the worker process failed: %s%s", error, exit_code)

    def _current_or_new(self) -> asyncio.Task[PreviewProcess]:
        """Return the start of the current worker, or start a new one."""
        task = self._worker_start
        if task is not None and task.done() and not _is_alive(task):
            # The worker was killed while it was idle, for example by the kernel.
            self._end(task, kill=True)
            task = None
        if task is None or self._worker_start is None:
            memory_bytes, seconds = self._limits.memory_bytes, self._limits.start_seconds
            task = asyncio.create_task(PreviewProcess.start(memory_bytes, seconds))
            self._worker_start = task
        return task

    def _end(
        self, worker_start: asyncio.Task[PreviewProcess], *, kill: bool
    ) -> asyncio.Task[int | None]:
        """End a worker in the background. The next preview starts a new one."""
        if self._worker_start is worker_start:
            self._worker_start = None
        ending = asyncio.create_task(_close(worker_start, kill=kill))
        self._ending_tasks.add(ending)
        ending.add_done_callback(self._ending_tasks.discard)
        return ending

    def _cancel_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _end_idle(self) -> None:
        if self._worker_start is not None and not self._worker_lock.locked():
            self._end(self._worker_start, kill=False)


def _is_alive(task: asyncio.Task[PreviewProcess]) -> bool:
    return not task.cancelled() and task.exception() is None and task.result().alive


async def _close(worker_start: asyncio.Task[PreviewProcess], *, kill: bool) -> int | None:
    """End a worker and return its exit code, or None if it never started."""
    try:
        worker = await worker_start
    except (WorkerError, OSError):  # TimeoutError is an OSError.
        return None
    return await worker.close(kill=kill)
