"""The worker processes of previews: their lifetime, limits and input, on a real server."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from http.client import HTTPResponse
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.support.factories import pod
from tests.support.http_client import (
    Client,
    InProcess,
    RequestClient,
    in_process,
    mutate,
    review_in,
)
from tests.support.paths import EXAMPLES
from tests.support.process import process_status, start_server
from tests.support.reviews import PODS, load_pod, review
from tests.support.server_fixtures import SETTINGS, STEADY, UNHURRIED, make_components
from tests.support.waiting import await_that
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.core.admission.decider import OperatorSettings
from webhook.core.policy.snapshot import Snapshot
from webhook.server.components import Components
from webhook.server.limits import PreviewLimits
from webhook.server.preview.answer_memory import PreviewError
from webhook.server.preview.preview_run import PreviewOptions
from webhook.server.preview.previewer import Previewer
from webhook.server.preview.worker_process import worker_niceness

pytestmark = pytest.mark.slow

TEKTON = load_pod(next(path for path in PODS if path.stem == "tekton-taskrun-sidecar"))
SMALL = json.dumps(TEKTON).encode()
POLICY = """\
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata: {name: all}
spec:
  namespaceSelector: {}
  remedies: {postInitSleep: {}}
"""


def large(pods: int = 490) -> bytes:
    """Tekton pods, 4 MiB of JSON, which take the worker seconds."""
    items = [copy.deepcopy(TEKTON) for _ in range(pods)]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()


def request(body: bytes) -> bytes:
    return b"POST /preview HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def body_of(answer: HTTPResponse) -> Any:
    return json.loads(answer.body)  # type: ignore[attr-defined]


def detail(client: Client | RequestClient, status: int) -> str:
    answer = client.answer()
    assert answer.status == status, answer.body  # type: ignore[attr-defined]
    text: str = body_of(answer)["detail"]
    return text


def pods_in(client: Client | RequestClient) -> list[dict[str, Any]]:
    answer = client.answer()
    assert answer.status == 200, answer.body  # type: ignore[attr-defined]
    found: list[dict[str, Any]] = body_of(answer)["pods"]
    return found


def workers(parent: int | None = None) -> list[int]:
    """The worker processes of a process, by default of this one."""
    found = []
    for task in Path(f"/proc/{parent or os.getpid()}/task").iterdir():
        with suppress(OSError):
            found += [int(pid) for pid in (task / "children").read_text().split()]
    return [pid for pid in found if is_worker(pid)]


def is_worker(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"webhook.server.preview.worker" in command and not is_gone(pid)


def is_gone(pid: int) -> bool:
    """Whether a process has ended. Its command line disappears before its files are closed."""
    try:
        return process_status(pid, "State")[0] == "Z"
    except OSError:
        return True


BUSY_KIB = 45 * 1024
"""A worker that has read a large text takes more memory than this."""


def resident_kib(pid: int) -> int:
    """The resident memory of a process, 0 after its end."""
    with suppress(OSError, KeyError):
        return int(process_status(pid, "VmRSS").split()[0])
    return 0


def start_preview(client: RequestClient, body: bytes = SMALL) -> int:
    """Ask for a preview, and return the process ID of its worker."""
    client.send(request(body))
    await_that(workers, "the worker is starting")
    (pid,) = workers()
    return pid


def has_lower_priority(pid: int) -> bool:
    return os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0)


def cpu_ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11])


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a worker until it is killed or the block ends."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


Serve = Callable[..., tuple[Components, InProcess]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start servers with other limits, sources or settings."""
    contexts = []

    def start(
        limits: PreviewLimits = UNHURRIED,
        source: ManifestsSource | None = None,
        settings: OperatorSettings = SETTINGS,
    ) -> tuple[Components, InProcess]:
        if source is None:
            source = ManifestsSource(EXAMPLES)
            source.refresh()
        components = make_components(
            source, settings=settings, limits=replace(STEADY, preview=limits)
        )
        running = in_process(components)
        server = running.__enter__()
        contexts.append(running)
        return components, server

    yield start
    for running in contexts:
        running.__exit__(None, None, None)
    await_that(lambda: not workers(), "the workers end with their servers")


def counted(server: InProcess, result: str) -> bool:
    text = server.connect().get("/metrics").body  # type: ignore[attr-defined]
    return f'podsettle_previews_total{{result="{result}"}} 1.0' in text.decode()


def in_flight(components: Components, number: int) -> Callable[[], bool]:
    return lambda: components.in_flight.requests == number


# Lifetime


def test_each_preview_has_a_worker_of_its_own_with_a_lower_priority(serve: Serve) -> None:
    _, server = serve()
    client = RequestClient(server.connect)
    pids = set()
    for _ in range(2):
        pid = start_preview(client)
        pids.add(pid)
        with stopped(pid):
            await_that(partial(has_lower_priority, pid), "its priority is lower")
        assert pods_in(client)[0]["outcomes"][0]["reason"] == "Applied"
        assert workers() == []
    assert len(pids) == 2


def test_worker_without_a_server_ends() -> None:
    command = [sys.executable, "-m", "webhook.server.preview.worker", str(128 * 1024 * 1024), "60"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_busy_worker_ends_if_its_server_is_killed(tmp_path: Path) -> None:
    with start_server(EXAMPLES, tmp_path) as server:
        address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        context = ssl.create_default_context(cafile=server.ca)
        client = RequestClient(lambda: Client(address, context))
        with closing(client):
            client.send(request(large()))
            await_that(lambda: workers(server.process.pid), "the worker is starting")
            (pid,) = workers(server.process.pid)
            await_that(lambda: resident_kib(pid) > BUSY_KIB, "the worker is busy")
            used = [cpu_ticks(pid)]
            server.process.kill()

            def ended() -> bool:
                with suppress(OSError):
                    used.append(cpu_ticks(pid))
                return is_gone(pid)

            await_that(ended, "the worker ends")
        # The whole preview takes more than a hundred ticks.
        assert used[-1] - used[0] < 50


# Limits


def test_preview_beyond_the_deadline_is_killed_and_the_next_succeeds(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    _, server = serve(replace(UNHURRIED, deadline_seconds=5))
    client = RequestClient(server.connect)
    pid = start_preview(client, large())
    # On a busy machine, it may reach the deadline before.
    await_that(lambda: is_gone(pid) or resident_kib(pid) > BUSY_KIB, "the worker is busy")
    with suppress(ProcessLookupError), ExitStack() as stack:
        with suppress(ProcessLookupError):
            stack.enter_context(stopped(pid))
        text = detail(client, 422)
    assert text.startswith("this preview takes longer than 5 s: send the input in parts, or use ")
    assert "preview: worker killed after 5 s" in caplog.text
    assert counted(server, "deadline")
    assert workers() == []
    client.send(request(b"kind: Service"))
    assert "a Service holds no pod" in detail(client, 422)


def test_worker_that_is_not_ready_in_time_is_an_error(serve: Serve) -> None:
    _, server = serve(replace(UNHURRIED, start_seconds=0))
    client = RequestClient(server.connect)
    client.send(request(SMALL))
    assert "the preview process was not ready within 0 s" in detail(client, 503)
    assert counted(server, "deadline")
    assert workers() == []


def test_preview_beyond_the_memory_limit_is_refused_and_the_next_succeeds(
    serve: Serve,
) -> None:
    _, server = serve(replace(UNHURRIED, memory_bytes=32 * 1024 * 1024))
    client = RequestClient(server.connect)
    client.send(request(large()))
    assert "needs more than 32 MiB of memory: send the input in parts" in detail(client, 422)
    assert counted(server, "memory")
    client.send(request(SMALL))
    assert pods_in(client)


def test_answer_that_is_too_long_is_refused(serve: Serve) -> None:
    _, server = serve(replace(UNHURRIED, answer_bytes=1024 * 1024))
    client = RequestClient(server.connect)
    client.send(request(large(100)))
    assert detail(client, 422) == "the answer is longer than 1 MiB: send the input in parts"
    assert counted(server, "refused")
    client.send(request(SMALL))
    assert pods_in(client)


def test_490_tekton_pods_are_within_the_limits(serve: Serve) -> None:
    _, server = serve()
    client = server.connect()
    client.socket.settimeout(UNHURRIED.deadline_seconds)
    client.send(request(large()))
    found = pods_in(client)
    assert len(found) == 490
    assert all(each["patch"] for each in found)


def test_previews_beyond_the_queue_are_refused_and_queued_ones_answered(
    serve: Serve,
) -> None:
    components, server = serve(replace(UNHURRIED, max_pending=2))
    first, second, third = (RequestClient(server.connect) for _ in range(3))
    pid = start_preview(first)
    with stopped(pid):
        second.send(request(SMALL))
        await_that(in_flight(components, 2), "both wait")
        third.send(request(SMALL))
        assert detail(third, 503) == "2 previews are already waiting; try again in a minute"
        # Reviews are still answered.
        third.send(mutate(review(TEKTON)))
        assert "patch" in review_in(third.answer())
    assert pods_in(first)
    assert pods_in(second)
    assert counted(server, "overloaded")


def test_preview_is_refused_after_the_queue_timeout(serve: Serve) -> None:
    _, server = serve(replace(UNHURRIED, queue_seconds=0.2))
    first, second = RequestClient(server.connect), RequestClient(server.connect)
    pid = start_preview(first)
    with stopped(pid):
        second.send(request(SMALL))
        assert detail(second, 503) == "other previews take too long; try again in a minute"
    assert pods_in(first)


# Errors


def test_crash_of_the_worker_fails_only_one_preview(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    components, server = serve()
    client, waiting = RequestClient(server.connect), RequestClient(server.connect)
    pid = start_preview(client)
    with stopped(pid):
        waiting.send(request(SMALL))
        await_that(in_flight(components, 2), "another one waits")
        os.kill(pid, signal.SIGKILL)
        assert "the preview process ended unexpectedly" in detail(client, 500)
    assert pods_in(waiting)
    assert counted(server, "crashed")
    assert "preview: the worker process failed: it ended (exit code -9)" in caplog.text


@pytest.mark.parametrize("at_work", [True, False], ids=["busy", "idle"])
def test_client_that_disconnects_leaves_the_queue(serve: Serve, at_work: bool) -> None:
    components, server = serve(replace(UNHURRIED, max_pending=2))
    clients = [RequestClient(server.connect) for _ in range(3)]
    pid = start_preview(clients[0])
    with stopped(pid):
        clients[1].send(request(SMALL))
        await_that(in_flight(components, 2), "another one waits")
        clients[0 if at_work else 1].close()
        await_that(in_flight(components, 1), "the preview has ended")
        assert counted(server, "disconnected")
        if at_work:
            await_that(lambda: pid not in workers(), "its worker has ended")
        clients[2].send(request(SMALL))
        await_that(lambda: at_work or in_flight(components, 2)(), "it is queued")
    assert pods_in(clients[1 if at_work else 0])
    assert pods_in(clients[2])


# Input


def test_changes_of_the_cluster_reach_previews(serve: Serve, tmp_path: Path) -> None:
    source = ManifestsSource(tmp_path)
    source.refresh()
    _, server = serve(source=source)
    client = RequestClient(server.connect)
    names = count()

    def reasons(**files: str) -> set[str]:
        for name, text in files.items():
            (tmp_path / f"{name}.yaml").write_text(text)
        source.refresh()
        changed = copy.deepcopy(TEKTON)
        changed["metadata"]["name"] = f"p{next(names)}"
        client.send(request(json.dumps(changed).encode()))
        return {outcome["reason"] for outcome in pods_in(client)[0]["outcomes"]}

    namespace = TEKTON["metadata"]["namespace"]
    labels = "{podsettle.dev/enabled: 'false'}"
    head = f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {namespace}, labels: "
    assert reasons() == {"NoPolicy"}
    assert "Applied" in reasons(policy=POLICY)
    assert reasons(namespace=f"{head}{labels}}}") == {"NamespaceDisabled"}
    assert "Applied" in reasons(namespace=f"{head}{{}}}}")
    modern = "{kubeletVersion: v1.36.0, containerRuntimeVersion: 'containerd://2.1.0'}"
    nodes = (
        f"apiVersion: v1\nkind: Node\nmetadata: {{name: node-1}}\nstatus: {{nodeInfo: {modern}}}"
    )
    assert "NotNeeded" in reasons(node=nodes)
    wanted = POLICY.replace("postInitSleep: {}", "runtimeClass: {name: fast}")
    assert reasons(policy=wanted) == {"RuntimeClassMissing"}
    fast = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: fast}\nhandler: f"
    assert reasons(fast=fast) == {"Applied"}


def test_settings_reach_previews(serve: Serve) -> None:
    namespace = TEKTON["metadata"]["namespace"]
    _, server = serve(settings=OperatorSettings(own_namespace=namespace))
    client = RequestClient(server.connect)
    client.send(request(SMALL))
    (outcome,) = pods_in(client)[0]["outcomes"]
    assert outcome["reason"] == "ProtectedNamespace"


@pytest.mark.parametrize("length", [64, 300, 1024 * 1024])
def test_invalid_namespace_of_any_length_is_unknown(serve: Serve, length: int) -> None:
    _, server = serve()
    client = RequestClient(server.connect)
    client.send(request(json.dumps(pod() | {"metadata": {"namespace": "n" * length}}).encode()))
    assert pods_in(client)[0]["namespace"] == "n" * length


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
from webhook.server.preview.preview_run import PreviewOptions
from webhook.server.preview.previewer import Previewer
async def main():
    {limits}
    previewer = Previewer(Snapshot, OperatorSettings(), limits=PreviewLimits(start_seconds=600))
    answer = await previewer.preview(PreviewOptions(), [{SMALL!r}])
    print(len(b"".join(answer.pieces)))
    await previewer.aclose()
asyncio.run(main())
"""
    # Without the capability that allows root to raise priorities.
    drop = ["setpriv", "--bounding-set=-sys_nice"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*drop, sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > len(SMALL)


@pytest.mark.parametrize(("servers", "workers_own"), [(0, 10), (9, 10), (10, 11), (19, 19)])
def test_worker_has_a_lower_priority_than_its_server(servers: int, workers_own: int) -> None:
    assert worker_niceness(servers) == workers_own


def test_disconnect_before_the_end_of_the_body_is_not_logged(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    components, server = serve()
    client = RequestClient(server.connect)
    client.send(request(SMALL)[:-100])
    await_that(lambda: components.preview_budget.used_bytes > 0, "the body is being read")
    client.close()
    await_that(lambda: components.in_flight.requests == 0, "the preview has ended")
    assert components.preview_budget.used_bytes == 0
    assert caplog.records == []


def test_preview_is_no_review_in_metrics_and_logs(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    _, server = serve()
    client = RequestClient(server.connect)
    client.send(request(SMALL))
    assert pods_in(client)[0]["patch"]
    text = server.connect().get("/metrics").body.decode()  # type: ignore[attr-defined]
    reviews = [line for line in text.splitlines() if line.startswith("podsettle_review")]
    assert [line for line in reviews if not line.endswith(" 0.0") and "_created" not in line] == []
    assert caplog.records == []


async def test_body_of_a_preview_that_takes_too_long_is_dropped_at_once() -> None:
    """The exception refers to frames with the body, until a garbage collection."""
    limits = replace(UNHURRIED, deadline_seconds=0.001)
    previewer = Previewer(Snapshot, OperatorSettings(), limits=limits)
    body = [large()]
    with pytest.raises(PreviewError, match="takes longer than"):
        await previewer.preview(PreviewOptions(), body)
    assert not body


@pytest.mark.parametrize("deadline_seconds", [0.001, UNHURRIED.deadline_seconds])
async def test_preview_trims_the_heap(
    monkeypatch: pytest.MonkeyPatch, deadline_seconds: float
) -> None:
    trims: list[int] = []
    monkeypatch.setattr("webhook.server.preview.previewer.malloc_trim", lambda: trims.append(1))
    limits = replace(UNHURRIED, deadline_seconds=deadline_seconds)
    previewer = Previewer(Snapshot, OperatorSettings(), limits=limits)
    with suppress(PreviewError):
        (await previewer.preview(PreviewOptions(), [SMALL])).release()
    assert trims == [1]


async def test_preview_whose_client_leaves_at_its_end_keeps_no_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = Previewer(Snapshot, OperatorSettings(), limits=UNHURRIED)
    length = sum(map(len, (await alone.preview(PreviewOptions(), [SMALL])).pieces))
    limits = replace(UNHURRIED, answer_bytes=length * 3 // 2)
    previewer = Previewer(Snapshot, OperatorSettings(), limits=limits)
    begun, ended = threading.Event(), threading.Event()

    def trim() -> None:
        begun.set()
        ended.wait()

    monkeypatch.setattr("webhook.server.preview.previewer.malloc_trim", trim)
    left = asyncio.create_task(previewer.preview(PreviewOptions(), [SMALL]))
    await asyncio.to_thread(begun.wait)
    left.cancel()
    ended.set()
    with pytest.raises(asyncio.CancelledError):
        await left
    # The answers of both do not fit.
    (await previewer.preview(PreviewOptions(), [SMALL])).release()
