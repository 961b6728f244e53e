"""The worker processes of previews: their lifetime, limits and input, on a real server."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp

from tests.support.factories import pod
from tests.support.paths import EXAMPLES
from tests.support.process import process_status, run
from tests.support.reviews import PODS, load_pod
from tests.support.server_fixtures import SETTINGS, STEADY, UNHURRIED, make_components
from tests.support.waiting import TIMEOUT_SECONDS
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.core.admission.decider import OperatorSettings
from webhook.server.app import create_app

pytestmark = pytest.mark.slow

TEKTON = load_pod(next(path for path in PODS if path.stem == "tekton-taskrun-sidecar"))
SMALL = json.dumps(TEKTON)
HEAVY = f"a: {'&a [' * 60}{'1,' * 120_000}{']' * 60}"
"""Takes the worker more than a second."""
NO_LIMIT = "use `podsettle preview`, which has no limit"
POLICY = """\
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata: {name: all}
spec:
  namespaceSelector: {}
  remedies: {postInitSleep: {}}
"""


def workers() -> list[int]:
    """The worker processes of this process that have not ended."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):
            found += [int(pid) for pid in (task / "children").read_text().split()]
    return [pid for pid in found if is_worker(pid)]


def is_worker(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return (
            b"webhook.server.preview.worker" in command and process_status(pid, "State")[0] != "Z"
        )
    except OSError:
        return False


class Previews:
    """The application without sockets, and its metrics."""

    def __init__(self, client: httpx.AsyncClient, app: ASGIApp) -> None:
        self.client = client
        self.app = app

    async def post(self, body: str = SMALL) -> httpx.Response:
        return await self.client.post("/preview", content=body)

    async def pods(self, body: str = SMALL) -> list[dict[str, Any]]:
        answer = await self.post(body)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["pods"]
        return found

    async def error(self, status: int, body: str = SMALL) -> str:
        answer = await self.post(body)
        assert answer.status_code == status, answer.text
        assert answer.headers.get("Retry-After") == ("5" if status == 429 else None)
        detail: str = answer.json()["detail"]
        return detail

    async def counted(self, result: str) -> bool:
        text = (await self.client.get("/metrics")).text
        return f'podsettle_previews_total{{result="{result}"}} 1.0' in text

    async def start(self, body: str = SMALL) -> tuple[asyncio.Task[httpx.Response], int]:
        """Ask for a preview, and stop its worker before it answers. Return its process ID."""
        task = asyncio.create_task(self.post(body))
        while not (found := workers()):
            assert not task.done(), task.result().text
            await asyncio.sleep(0.001)
        (pid,) = found
        os.kill(pid, signal.SIGSTOP)
        return task, pid


@asynccontextmanager
async def previews(
    source: ManifestsSource | None = None,
    settings: OperatorSettings = SETTINGS,
    **limits: Any,
) -> AsyncIterator[Previews]:
    if source is None:
        source = ManifestsSource(EXAMPLES)
        source.refresh()
    components = make_components(
        source, settings=settings, limits=replace(STEADY, preview=replace(UNHURRIED, **limits))
    )
    app = create_app(components)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="https://podsettle") as client:
        yield Previews(client, app)
    assert workers() == []


# Lifetime


async def test_each_preview_has_a_worker_of_its_own_with_a_lower_priority() -> None:
    pids = set()
    async with previews() as made:
        for _ in range(2):
            task, pid = await made.start()
            pids.add(pid)
            await asyncio.sleep(0.1)
            assert os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0)
            os.kill(pid, signal.SIGCONT)
            assert (await task).json()["pods"][0]["outcomes"][0]["reason"] == "Applied"
            assert workers() == []
    assert len(pids) == 2


def test_worker_without_a_server_ends() -> None:
    command = [sys.executable, "-m", "webhook.server.preview.worker", str(128 * 1024 * 1024), "60"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_busy_worker_without_a_server_ends_by_its_limit_of_cpu_time() -> None:
    command = [sys.executable, "-m", "webhook.server.preview.worker", str(128 * 1024 * 1024), "1"]
    line = json.dumps(
        [base64.b64encode("\n---\n".join([HEAVY] * 6).encode()).decode(), None]
    ).encode()
    done = subprocess.run(command, input=line, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL


# Limits


async def test_preview_beyond_the_deadline_is_killed_and_the_next_succeeds() -> None:
    async with previews(deadline_seconds=5) as made:
        task, _ = await made.start()
        answer = await task
        assert answer.status_code == 422
        assert answer.json()["detail"] == f"this preview takes longer than 5 s: {NO_LIMIT}"
        assert workers() == []
        assert await made.counted("deadline")
        assert await made.pods()


async def test_busy_worker_is_killed_at_the_deadline() -> None:
    # The text takes a second on a fast machine, most of it after the worker has started.
    async with previews(deadline_seconds=0.3) as made:
        assert "takes longer than 0.3 s" in await made.error(422, HEAVY)
        assert workers() == []


async def test_preview_beyond_the_memory_limit_is_refused_and_the_next_succeeds() -> None:
    async with previews(memory_bytes=24 * 1024 * 1024) as made:
        detail = await made.error(422, HEAVY)
        assert detail == f"this preview needs more than 24 MiB of memory: {NO_LIMIT}"
        assert await made.counted("memory")
        assert await made.pods()


async def test_answer_that_is_too_long_is_refused_and_the_next_succeeds() -> None:
    many = json.dumps({"kind": "List", "items": [TEKTON] * 20})
    async with previews(answer_bytes=200 * 1024) as made:
        detail = await made.error(413, many)
        assert detail == f"the answer is longer than 0 MiB: {NO_LIMIT}"
        assert await made.counted("refused")
        assert await made.pods()


async def test_refused_parameter_is_counted() -> None:
    async with previews() as made:
        assert (await made.client.post("/preview?pod=a", content=SMALL)).status_code == 422
        assert await made.counted("refused")


async def test_previews_beyond_the_queue_are_refused_and_queued_ones_answered() -> None:
    async with previews() as made:
        first, pid = await made.start()
        queued = [asyncio.create_task(made.post()) for _ in range(8)]
        await asyncio.sleep(0.1)
        assert workers() == [pid]
        assert await made.error(429) == "other previews are waiting; try again"
        assert await made.counted("overloaded")
        os.kill(pid, signal.SIGCONT)
        answers = await asyncio.gather(first, *queued)
        assert [answer.status_code for answer in answers] == [200] * 9
        assert await made.pods()


async def test_preview_is_refused_after_the_queue_timeout() -> None:
    async with previews(queue_seconds=0.2) as made:
        first, pid = await made.start()
        assert await made.error(429) == "another preview takes long; try again"
        os.kill(pid, signal.SIGCONT)
        assert (await first).status_code == 200


async def test_slow_bodies_are_refused_in_time_and_keep_no_other_preview_waiting() -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"kind: "
        await asyncio.sleep(600)

    async with previews(body_timeout_seconds=3, max_requests=1) as made:
        slow = [asyncio.create_task(made.client.post("/preview", content=body())) for _ in range(9)]
        await asyncio.sleep(0.1)
        assert await made.pods()
        answers = await asyncio.gather(*slow)
        assert {answer.status_code for answer in answers} == {408}
        assert answers[0].json()["detail"] == "the body was not complete within 3 s"


@pytest.mark.parametrize("started", [True, False])
async def test_preview_ends_with_its_client_and_frees_its_place(
    started: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`started` is False if the client disconnects while a thread is starting the worker."""
    disconnected = threading.Event()
    set_priority = os.setpriority

    def wait_for_client(which: int, pid: int, priority: int) -> None:
        disconnected.wait(0 if started else TIMEOUT_SECONDS)
        set_priority(which, pid, priority)

    monkeypatch.setattr(os, "setpriority", wait_for_client)
    async with previews(max_requests=1) as made:
        sent = [
            {"type": "http.request", "body": HEAVY.encode(), "more_body": False},
            {"type": "http.disconnect"},
        ]
        answers: list[Any] = []

        async def receive() -> Any:
            if len(sent) == 1:
                while not workers():  # noqa: ASYNC110 (a process has no event)
                    await asyncio.sleep(0.001)
                os.kill(workers()[0], signal.SIGSTOP)
                asyncio.get_running_loop().call_later(0.1, disconnected.set)
            return sent.pop(0)

        async def send(message: Any) -> None:
            answers.append(message)

        scope = {
            "type": "http", "method": "POST", "path": "/preview", "raw_path": b"/preview",
            "query_string": b"", "headers": [], "scheme": "https", "http_version": "1.1",
        }  # fmt: skip
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await made.app(scope, receive, send)
        assert workers() == []
        assert answers[0]["status"] == 408
        assert await made.counted("disconnected")
        assert await made.pods()


# Errors


async def test_crash_of_the_worker_fails_only_one_preview(caplog: pytest.LogCaptureFixture) -> None:
    async with previews() as made:
        first, pid = await made.start()
        waiting = asyncio.create_task(made.post())
        os.kill(pid, signal.SIGKILL)
        answer = await first
        assert answer.status_code == 500
        assert "the preview process ended unexpectedly" in answer.json()["detail"]
        assert (await waiting).status_code == 200
        assert await made.counted("crashed")
    assert "(exit code -9)" in caplog.text


# Input


async def test_changes_of_the_cluster_reach_previews(tmp_path: Path) -> None:
    source = ManifestsSource(tmp_path)
    source.refresh()

    async def reasons(**files: str) -> set[str]:
        for name, text in files.items():
            (tmp_path / f"{name}.yaml").write_text(text)
        source.refresh()
        async with previews(source) as made:
            return {outcome["reason"] for outcome in (await made.pods())[0]["outcomes"]}

    namespace = TEKTON["metadata"]["namespace"]
    labels = "{podsettle.dev/enabled: 'false'}"
    head = f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}, labels: "
    assert await reasons() == {"NoPolicy"}
    assert "Applied" in await reasons(policy=POLICY)
    assert await reasons(namespace=f"{head}{labels}}}") == {"NamespaceDisabled"}
    assert "Applied" in await reasons(namespace=f"{head}{{}}}}")
    modern = "{kubeletVersion: v1.36.0, containerRuntimeVersion: 'containerd://2.1.0'}"
    nodes = (
        f"apiVersion: v1\nkind: Node\nmetadata: {{name: node-1}}\nstatus: {{nodeInfo: {modern}}}"
    )
    assert "NotNeeded" in await reasons(node=nodes)
    wanted = POLICY.replace("postInitSleep: {}", "runtimeClass: {name: fast}")
    assert await reasons(policy=wanted) == {"RuntimeClassMissing"}
    fast = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: fast}\nhandler: f"
    assert await reasons(fast=fast) == {"Applied"}


async def test_settings_reach_previews() -> None:
    own = OperatorSettings(own_namespace=TEKTON["metadata"]["namespace"])
    async with previews(settings=own) as made:
        (outcome,) = (await made.pods())[0]["outcomes"]
        assert outcome["reason"] == "ProtectedNamespace"


@pytest.mark.parametrize("length", [64, 300, 200 * 1024])
async def test_invalid_namespace_of_any_length_is_unknown(length: int) -> None:
    async with previews() as made:
        body = json.dumps(pod() | {"metadata": {"namespace": "n" * length}})
        assert (await made.pods(body))[0]["namespace"] == "n" * length


@pytest.mark.parametrize(
    "limits",
    [
        "os.nice(15)",
        "resource.setrlimit(resource.RLIMIT_CPU, (60, 60))",
        "resource.setrlimit(resource.RLIMIT_DATA, (100 * MIB, 100 * MIB))",
    ],
)
def test_server_with_lower_limits_of_its_own_starts_a_worker(limits: str) -> None:
    script = f"""import asyncio, os, resource
from webhook.core.policy.snapshot import Snapshot
from webhook.core.admission.decider import OperatorSettings
from webhook.server.limits import MIB, PreviewLimits
from webhook.server.preview.previewer import Previewer
async def main():
    {limits}
    limits = PreviewLimits(deadline_seconds=600)
    previewer = Previewer(Snapshot, OperatorSettings(), None, limits)
    print(len(await previewer.preview({SMALL.encode()!r}, None, None, None)))
asyncio.run(main())
"""
    # Without the capability that allows root to raise priorities.
    drop = ["setpriv", "--bounding-set=-sys_nice"] if os.geteuid() == 0 else []
    done = run(*drop, sys.executable, "-c", script)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > len(SMALL)


async def test_preview_is_no_review_in_metrics_and_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "webhook")
    async with previews() as made:
        assert (await made.pods())[0]["patch"]
        text = (await made.client.get("/metrics")).text
    reviews = [line for line in text.splitlines() if line.startswith("podsettle_review")]
    assert [line for line in reviews if not line.endswith(" 0.0") and "_created" not in line] == []
    assert caplog.records == []
