"""Frames of a worker that an attacker controls."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.factories import SETTINGS, policy_document, view
from webhook.server.limits import PreviewLimits
from webhook.server.preview.answer_memory import PreviewAnswerText
from webhook.server.preview.frames import MAX_PODS, MAX_POLICIES, MAX_POLICY_BYTES, header
from webhook.server.preview.preview_run import PreviewOptions, PreviewRun
from webhook.server.preview.worker_process import WorkerError, WorkerProcess
from webhook.server.reviews.load_shedding import MemoryBudget

POD: dict[str, Any] = {"type": "PodFound", "namespace": None, "pod": {}}
END = {"type": "TextRead"}


def policy_found(name: str = "p", **spec: Any) -> dict[str, Any]:
    return {"type": "PolicyFound", "document": policy_document(name, **spec)}


@asynccontextmanager
async def worker_that_sends(*frames: bytes) -> AsyncIterator[WorkerProcess]:
    """A worker whose frames are already there."""
    ours, theirs = socket.socketpair()
    _, peer = await asyncio.open_unix_connection(sock=theirs)
    peer.write(b"".join(header(len(frame)) + frame for frame in frames))
    peer.write_eof()
    process = subprocess.Popen([sys.executable, "-c", ""])  # noqa: ASYNC220
    worker = WorkerProcess(process, *await asyncio.open_unix_connection(sock=ours))
    try:
        yield worker
    finally:
        await worker.end(kill=True)
        peer.close()


async def make(*frames: object) -> PreviewAnswerText:
    """Make a preview with a worker that sends these frames: bytes, or values as JSON."""
    encoded = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in frames]
    budget = MemoryBudget(1024 * 1024)
    answer = PreviewAnswerText(budget)
    async with worker_that_sends(*encoded) as worker, asyncio.timeout(600) as deadline:
        seen = view()
        run = PreviewRun(worker, PreviewOptions(), lambda: seen, SETTINGS, None, PreviewLimits())
        try:
            await run.make([b"text"], answer, deadline)
        finally:
            assert budget.used_bytes == sum(map(len, answer.pieces))
    return answer


@pytest.mark.parametrize(
    ("frames", "problem"),
    [
        ([], "it ended"),
        ([b"no JSON"], "an invalid frame"),
        ([b"[" * 100_000], "an invalid frame"),
        ([{"type": "Unknown"}], "an invalid frame"),
        ([POD | {"namespace": 5}], "an invalid frame"),
        ([POD] * (MAX_PODS + 1), "more than a text may contain"),
        (
            [policy_found(f"p{number}") for number in range(MAX_POLICIES + 1)],
            "more than a text may contain",
        ),
        ([policy_found(description="x" * MAX_POLICY_BYTES)], "more than a text may contain"),
        (
            [policy_found(f"p{n}", description="x" * (MAX_POLICY_BYTES - 1024)) for n in range(5)],
            "more than a text may contain",
        ),
        ([policy_found(remedies={}), POD, END], "an invalid policy"),
        ([POD, END], "it ended"),
    ],
    ids=[
        "no frame",
        "no JSON",
        "deep JSON",
        "an unknown frame",
        "a wrong type",
        "too many pods",
        "too many policies",
        "a long policy",
        "long policies together",
        "an invalid policy",
        "no answer",
    ],
)
async def test_worker_that_sends_what_it_must_not_is_an_error(
    frames: list[object], problem: str
) -> None:
    with pytest.raises(WorkerError, match=problem):
        await make(*frames)


async def test_pod_that_is_no_pod_is_decided_as_malformed() -> None:
    answer = await make(POD | {"pod": "text"}, END, b"{part}", b"{last}")
    assert b"".join(answer.pieces) == b"{part}{last}"
