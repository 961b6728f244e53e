"""The worker process for previews: its lifetime, its limits and its input, on a real server."""

from __future__ import annotations

import copy
import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from http.client import HTTPResponse
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.factories import node, pod, policy, runtime_class
from tests.support.factories import view as make_view
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
from webhook.cluster.manifest_source import ManifestsSource
from webhook.core.admission.decider import OperatorSettings
from webhook.core.policy.model import SettlePolicy
from webhook.server.components import Components
from webhook.server.limits import PreviewLimits
from webhook.server.preview.messages import (
    MAX_FRAME_BYTES,
    PART_BYTES,
    NodesPart,
    PoliciesPart,
    ViewComplete,
    decode_for_worker,
    frame,
    frame_length,
    view_parts,
)
from webhook.server.preview.worker_client import PreviewProcess, worker_niceness

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


def test_first_preview_starts_the_worker_and_later_ones_use_it(serve: Serve) -> None:
    _, server = serve()
    assert workers() == []
    client = RequestClient(server.connect)
    client.send(request(SMALL))
    assert pods_in(client)[0]["outcomes"][0]["reason"] == "Applied"
    (pid,) = workers()
    client.send(request(SMALL))
    assert pods_in(client)
    assert workers() == [pid]
    assert counted(server, "answered") is False
    assert os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0)


def test_worker_is_ended_after_a_long_text(serve: Serve) -> None:
    _, server = serve(replace(UNHURRIED, reuse_bytes=len(SMALL) - 1))
    client = RequestClient(server.connect)
    for _ in range(2):
        client.send(request(SMALL))
        assert pods_in(client)
        await_that(lambda: not workers(), "the worker is ended")


def test_idle_worker_is_ended_and_started_again(serve: Serve) -> None:
    _, server = serve(replace(UNHURRIED, idle_seconds=0.2))
    client = RequestClient(server.connect)
    for _ in range(2):
        client.send(request(SMALL))
        assert pods_in(client)
        await_that(lambda: not workers(), "the idle worker is ended")


def test_idle_worker_ends_if_its_server_is_killed(tmp_path: Path) -> None:
    with start_server(EXAMPLES, tmp_path) as server:
        server.await_previews()
        (pid,) = workers(server.process.pid)
        server.process.kill()
        server.process.wait()
        await_that(lambda: is_gone(pid), "the worker ends")


def test_busy_worker_ends_if_its_server_is_killed(tmp_path: Path) -> None:
    with start_server(EXAMPLES, tmp_path) as server:
        address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        context = ssl.create_default_context(cafile=server.ca)
        client = RequestClient(lambda: Client(address, context))
        server.await_previews()
        with closing(client):
            (pid,) = workers(server.process.pid)
            before = cpu_ticks(pid)
            client.send(request(large()))
            await_that(lambda: cpu_ticks(pid) > before + 10, "the worker is busy")
            used = [cpu_ticks(pid)]
            server.process.kill()

            def ended() -> bool:
                with suppress(OSError):
                    used.append(cpu_ticks(pid))
                return is_gone(pid)

            await_that(ended, "the worker ends")
        # The whole preview takes more than a hundred ticks.
        assert used[-1] - used[0] < 50


def test_worker_killed_while_idle_is_replaced(serve: Serve) -> None:
    _, server = serve()
    client = RequestClient(server.connect)
    client.send(request(SMALL))
    assert pods_in(client)
    (pid,) = workers()
    os.kill(pid, signal.SIGKILL)
    await_that(lambda: is_gone(pid), "it is gone")
    # The event loop notices the closed socket before it reads the next request.
    assert server.connect().get("/livez").status == 200
    client.send(request(SMALL))
    assert pods_in(client)


# Limits


def test_preview_beyond_the_deadline_is_killed_and_the_next_succeeds(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    _, server = serve(replace(UNHURRIED, deadline_seconds=5))
    client = RequestClient(server.connect)
    client.send(request(SMALL))
    assert pods_in(client)
    (pid,) = workers()
    with stopped(pid):
        client.send(request(SMALL))
        text = detail(client, 422)
    assert text.startswith("this preview takes longer than 5 s: send the input in parts, or use ")
    assert "preview: worker killed after 5 s" in caplog.text
    assert counted(server, "deadline")
    client.send(request(b"kind: Service"))
    assert "a Service holds no pod" in detail(client, 422)


def test_preview_beyond_the_memory_limit_is_refused_and_the_next_succeeds(
    serve: Serve,
) -> None:
    _, server = serve(replace(UNHURRIED, memory_bytes=64 * 1024 * 1024))
    client = RequestClient(server.connect)
    client.send(request(SMALL))
    assert pods_in(client)
    client.send(request(large()))
    assert "needs more than 64 MiB of memory: send the input in parts" in detail(client, 422)
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
    first.send(request(SMALL))
    assert pods_in(first)
    (pid,) = workers()
    with stopped(pid):
        first.send(request(SMALL))
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
    components, server = serve(replace(UNHURRIED, queue_seconds=0.2))
    first, second = RequestClient(server.connect), RequestClient(server.connect)
    first.send(request(SMALL))
    assert pods_in(first)
    (pid,) = workers()
    with stopped(pid):
        first.send(request(SMALL))
        await_that(in_flight(components, 1), "one is in flight")
        second.send(request(SMALL))
        assert detail(second, 503) == "other previews take too long; try again in a minute"
    assert pods_in(first)


# Errors


def test_crash_of_the_worker_fails_only_one_preview(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    components, server = serve()
    client, waiting = RequestClient(server.connect), RequestClient(server.connect)
    client.send(request(SMALL))
    assert pods_in(client)
    (pid,) = workers()
    with stopped(pid):
        client.send(request(SMALL))
        await_that(in_flight(components, 1), "one is in flight")
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
    clients[0].send(request(SMALL))
    assert pods_in(clients[0])
    (pid,) = workers()
    with stopped(pid):
        for number in (0, 1):
            clients[number].send(request(SMALL))
            await_that(in_flight(components, number + 1), "it is in flight")
        clients[0 if at_work else 1].close()
        await_that(in_flight(components, 1), "the preview has ended")
        assert counted(server, "disconnected")
        if at_work:
            await_that(lambda: pid not in workers(), "its worker has ended")
        clients[2].send(request(SMALL))
        await_that(lambda: at_work or in_flight(components, 2)(), "it is queued")
    assert pods_in(clients[1 if at_work else 0])
    assert pods_in(clients[2])


def test_disconnect_during_the_start_leaves_the_worker_to_the_next_preview(
    serve: Serve,
) -> None:
    components, server = serve()
    client, later = RequestClient(server.connect), RequestClient(server.connect)
    client.send(request(SMALL))
    await_that(workers, "the worker is starting")
    (pid,) = workers()
    with stopped(pid):
        client.close()
        await_that(in_flight(components, 0), "the preview has ended")
    later.send(request(SMALL))
    assert pods_in(later)
    assert workers() == [pid]


# Input


def test_changes_of_the_cluster_reach_the_worker(serve: Serve, tmp_path: Path) -> None:
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
    assert len(workers()) == 1


def test_settings_reach_the_worker(serve: Serve) -> None:
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


def test_view_is_sent_in_small_parts_without_namespaces() -> None:
    """Small parts do not delay reviews. The test counts their content, because timing varies."""
    several = [policy(f"p{n}", podSelector={"matchLabels": {"app": f"a{n}"}}) for n in range(1_000)]
    spaces = [{"metadata": {"name": f"ns{n}"}} for n in range(10_000)]
    nodes = [node(f"n{n}", labels={f"label-{k}": f"v{n}" for k in range(15)}) for n in range(5_000)]
    large = make_view(*several, namespaces=spaces, nodes=nodes, classes=[runtime_class("fast")])
    parts = list(view_parts(None, large))
    policies = [part for part in parts if isinstance(part, PoliciesPart)]
    assert sum(len(part.documents) for part in policies) == 1_000
    assert sum(len(part.nodes) for part in parts if isinstance(part, NodesPart)) == 5_000
    assert [part.first for part in policies] == [True, *[False] * (len(policies) - 1)]
    assert max(map(len, map(frame, parts))) < 256 * 1024
    assert not any(b"ns1234" in frame(part) for part in parts)
    # Unchanged parts are not sent again.
    assert list(view_parts(large, replace(large, namespaces={}))) == []
    changed = replace(large, nodes=make_view(nodes=nodes[:1]).nodes)
    assert [type(part) for part in view_parts(large, changed)] == [NodesPart, ViewComplete]


def wide_policy(name: str, values: int) -> SettlePolicy:
    """A policy with this many values of 63 characters."""
    wanted = [f"value-{n:057}" for n in range(values)]
    selector = {"matchExpressions": [{"key": "team", "operator": "In", "values": wanted}]}
    return policy(name, namespaceSelector=selector)


def test_long_policies_and_large_nodes_are_sent_in_separate_parts() -> None:
    wide = [wide_policy(f"p{n}", 5_000) for n in range(20)]
    labels = {f"label.example/key-{k}": "v" * 63 for k in range(400)}
    large = make_view(*wide, nodes=[node(f"n{n}", labels=labels) for n in range(200)])
    parts = list(view_parts(None, large))
    policies = [part for part in parts if isinstance(part, PoliciesPart)]
    assert [len(part.documents) for part in policies] == [1] * 20
    nodes = [part for part in parts if isinstance(part, NodesPart)]
    assert [found for part in nodes for found in part.nodes] == list(large.nodes.all)
    assert [part.first for part in nodes] == [True, *[False] * (len(nodes) - 1)]
    longest = max(len(document) for part in policies for document in part.documents)
    assert max(map(len, map(frame, parts))) < longest + PART_BYTES


def test_policies_that_exceed_one_message_reach_the_worker(serve: Serve, tmp_path: Path) -> None:
    wide = (wide_policy(f"p{n}", 5_000) for n in range(16))
    texts = [each.model_dump_json(by_alias=True, exclude_unset=True) for each in wide]
    assert sum(map(len, texts)) > MAX_FRAME_BYTES
    (tmp_path / "policies.yaml").write_text("\n---\n".join([*texts, POLICY]))
    source = ManifestsSource(tmp_path)
    source.refresh()
    assert len(source.policies_in_force) == len(texts) + 1
    _, server = serve(source=source)
    client = RequestClient(server.connect)
    client.send(request(SMALL))
    assert pods_in(client)[0]["patch"]


def test_policies_are_equal_after_sending() -> None:
    source = ManifestsSource(EXAMPLES)
    source.refresh()
    parts = [p for p in view_parts(None, source.view) if isinstance(p, PoliciesPart)]
    read = [SettlePolicy.model_validate_json(text) for part in parts for text in part.documents]
    assert {found.metadata.name: found for found in read} == source.policies_in_force


def test_frame_that_is_too_long_or_invalid_is_an_error() -> None:
    with pytest.raises(ValueError, match="a message of"):
        frame_length((MAX_FRAME_BYTES + 1).to_bytes(4, "big"))
    with pytest.raises(msgspec.DecodeError):
        decode_for_worker(b"\xc1")


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
from webhook.server.preview.previewer import Previewer, PreviewOptions
async def main():
    {limits}
    previewer = Previewer(Snapshot, OperatorSettings(), limits=PreviewLimits(start_seconds=600))
    answer = await previewer.preview(PreviewOptions(), [{SMALL!r}])
    print(answer.length)
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


async def test_worker_that_is_not_ready_in_time_is_an_error() -> None:
    with pytest.raises(TimeoutError):
        await PreviewProcess.start(64 * 1024 * 1024, seconds=0)
    assert workers() == []
