"""Tests of watches that stay idle, break or are malformed, and of containers that restart."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_apiserver import POD, FakeApiServer, pod
from tests.support.kube.cluster import Json
from tests.support.kubeconfigs import write_kubeconfig
from tests.support.kubelet_status import RUNNING, running, terminated, waiting
from webhook.client import (
    Backoff,
    PodDeletedError,
    PodName,
    StreamSettings,
    Unreachable,
    copy_logs,
    wait_terminated,
)
from webhook.client.container_state import may_restart
from webhook.cluster.watch import WatchLimits

pytestmark = pytest.mark.slow

ONCE = Backoff(first=0, total=0)
ALWAYS_STABLE = StreamSettings(stable_after_seconds=0)
PENDING = pod("Pending", waiting("ContainerCreating"), restartPolicy="Never")
STARTED = pod("Running", RUNNING, restartPolicy="Never")
ENDED = pod("Failed", terminated(3), restartPolicy="Never")
ends = pytest.mark.parametrize("abort", [False, True], ids=["closed", "broken"])


@ends
async def test_wait_survives_idle_watches_that_are_closed(abort: bool) -> None:
    """The back-off allows no failed attempt."""
    async with (
        FakeApiServer.started(STARTED, ENDED, idle_watches=3, abort=abort) as api,
        api.client() as server,
    ):
        waited = await wait_terminated(server, POD, backoff=ONCE, settings=ALWAYS_STABLE)
        assert waited.exit_code == 3
        assert api.watches == 4


@ends
async def test_logs_of_a_pending_pod_survive_idle_watches_that_are_closed(abort: bool) -> None:
    got: list[bytes] = []
    async with (
        FakeApiServer.started(PENDING, STARTED, ENDED, idle_watches=3, abort=abort) as api,
        api.client() as server,
    ):
        await copy_logs(server, POD, got.append, follow=True, backoff=ONCE, settings=ALWAYS_STABLE)
        assert api.watches == 4
    assert got == [b"text\n"]


async def test_idle_watch_is_replaced_after_its_timeout() -> None:
    """The back-off allows no failed attempt. The last watch has an event before its timeout."""
    settings = StreamSettings(watch_limits=WatchLimits(silent_seconds=1))
    async with FakeApiServer.started(STARTED, ENDED, idle_watches=3) as api, api.client() as server:
        api.keeps_watches_open = True
        waited = await wait_terminated(server, POD, backoff=ONCE, settings=settings)
        assert waited.exit_code == 3
        assert api.watches == 4


async def test_namespace_is_escaped_in_the_request_path() -> None:
    async with FakeApiServer.started(STARTED, ENDED) as api, api.client() as server:
        odd = PodName("ci?x=y/..", "step-1")
        assert (await wait_terminated(server, odd, backoff=ONCE)).exit_code == 3


async def test_watches_that_always_break_raise_unreachable() -> None:
    async with (
        FakeApiServer.started(PENDING, idle_watches=99, abort=True) as api,
        api.client() as server,
    ):
        with pytest.raises(Unreachable):
            await wait_terminated(server, POD, backoff=ONCE)
        with pytest.raises(Unreachable):
            await copy_logs(server, POD, print, follow=True, backoff=ONCE)


BOOKMARK = b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "0"}}}'
TOLD = json.dumps(
    {"type": "MODIFIED", "object": STARTED | {"metadata": {"uid": "u", "resourceVersion": "0"}}}
).encode()
EXPIRED = b'{"type": "ERROR", "object": {"code": 410, "message": "too old"}}'


@pytest.mark.parametrize("line", [None, BOOKMARK, TOLD, EXPIRED])
async def test_next_watch_starts_after_the_back_off(
    line: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    loop = asyncio.get_running_loop()

    def record_and_call_soon(
        seconds: float, callback: Callable[..., object], *args: Any, **options: Any
    ) -> asyncio.Handle:
        pauses.append(seconds)
        return loop.call_soon(callback, *args, **options)

    # asyncio.sleep waits by call_later, timeouts by call_at: only pauses are recorded and skipped.
    monkeypatch.setattr(loop, "call_later", record_and_call_soon)
    async with FakeApiServer.started(STARTED, ENDED, idle_watches=3) as api, api.client() as server:
        api.lines = [line] if line else []
        ended = await wait_terminated(server, POD, backoff=Backoff(first=7, total=0))
        assert ended.exit_code == 3
        assert api.watches == 4
    assert pauses[:3] == [7, 7, 7]


@pytest.mark.parametrize("line", [BOOKMARK, b"<html>"])
async def test_watch_that_breaks_early_without_an_event_is_a_failed_attempt(line: bytes) -> None:
    async with FakeApiServer.started(STARTED, ENDED, idle_watches=1, abort=True) as api:
        api.lines = [line]
        async with api.client() as server:
            with pytest.raises(Unreachable):
                await wait_terminated(server, POD, backoff=ONCE)


async def test_watch_without_a_response_is_a_failed_attempt() -> None:
    """A missing response fails the attempt, however long the watch was open."""
    settings = StreamSettings(stable_after_seconds=0, watch_limits=WatchLimits(answer_seconds=0.05))
    async with FakeApiServer.started(STARTED, ENDED) as api, api.client() as server:
        api.unanswered = 99
        with pytest.raises(Unreachable, match=r"/pods.*: no answer in time"):
            await wait_terminated(server, POD, backoff=ONCE, settings=settings)


@pytest.mark.parametrize("follow", [False, True])
async def test_log_request_without_a_response_is_a_failed_attempt(
    follow: bool,
) -> None:
    settings = StreamSettings(stable_after_seconds=0, log_silence_seconds=0.05)
    async with FakeApiServer.started(ENDED) as api, api.client() as server:
        api.unanswered = 9
        got: list[bytes] = []
        with pytest.raises(Unreachable):
            await copy_logs(server, POD, got.append, follow=follow, backoff=ONCE, settings=settings)
        assert api.logs < 9
        assert got == []


NOT_A_POD = "podsettle: pod ci/step-1: the answer is not a Pod\n"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("7", NOT_A_POD),
        ('{"type": "MODIFIED"}', NOT_A_POD),
        ('{"type": "MODIFIED", "object": {}}', NOT_A_POD),
        ('{"type": "BOOKMARK", "object": {}}', NOT_A_POD),
        ('{"type": "ERROR", "object": {"code": null}}', NOT_A_POD),
        (
            '{"type": "ERROR", "object": {"code": 403, "message": null}}',
            "podsettle: the API server answered 403: \n",
        ),
    ],
)
async def test_malformed_watch_event_exits_with_2(line: str, told: str, tmp_path: Path) -> None:
    async with FakeApiServer.started(STARTED, ENDED, idle_watches=1) as api:
        api.lines = [line.encode()]
        kubeconfig = write_kubeconfig(tmp_path, api.url)
        with running(kubeconfig, tmp_path, "wait", "step-1", "-n", "ci") as ran:
            assert await asyncio.to_thread(ran.end) == 2
            assert (ran.stdout, ran.stderr) == (b"", told)


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({}, "its terminated state has no exitCode"),
        ({"exitCode": None}, "its terminated state has no exitCode"),
        ({"exitCode": False}, "its terminated state has the exitCode False"),
    ],
)
async def test_exit_code_that_is_not_a_number_exits_with_2(
    state: Json, told: str, tmp_path: Path
) -> None:
    odd = pod("Succeeded", {"terminated": state}, restartPolicy="Never")
    async with FakeApiServer.started(odd) as api:
        kubeconfig = write_kubeconfig(tmp_path, api.url)
        with running(kubeconfig, tmp_path, "wait", "step-1", "-n", "ci") as ran:
            assert await asyncio.to_thread(ran.end) == 2
            assert ran.stdout == b""
            assert told in ran.stderr


LAST = terminated(1)
RESTARTED: list[tuple[str, Json, Json | None]] = [
    ("Running", RUNNING, None),
    ("Running", LAST, None),
    ("Running", waiting("CrashLoopBackOff"), LAST),
    ("Running", RUNNING, LAST),
]


@pytest.mark.parametrize("first", range(6))
@pytest.mark.parametrize(
    ("policy", "code", "phase"), [("OnFailure", 0, "Succeeded"), ("Always", 137, "Failed")]
)
async def test_exit_code_of_a_restarting_container_is_that_of_its_last_run(
    policy: str, code: int, phase: str, first: int
) -> None:
    end = [("Running", terminated(code), LAST), (phase, terminated(code), LAST)]
    history = [pod(*each, restartPolicy=policy) for each in (*RESTARTED, *end)]
    async with FakeApiServer.started(*history[first:]) as api, api.client() as server:
        assert (await wait_terminated(server, POD, backoff=ONCE)).exit_code == code


@pytest.mark.parametrize(("policy", "code"), [("Always", 7), ("OnFailure", 7), ("Never", 7)])
@pytest.mark.parametrize("deleting", [False, True])
async def test_exit_code_of_a_missed_deletion_counts_only_without_a_possible_restart(
    policy: str, code: int, deleting: bool
) -> None:
    """Another pod now has the name, so the last state of the first pod is unknown."""
    ended = pod("Running", terminated(code), restartPolicy=policy)
    if deleting:
        ended["metadata"]["deletionTimestamp"] = "2026-05-30T10:00:00Z"
    other = pod("Pending", {})
    other["metadata"]["uid"] = "another"
    history = (pod("Running", RUNNING, restartPolicy=policy), ended, other)
    async with FakeApiServer.started(*history) as api, api.client() as server:
        waited = wait_terminated(server, POD, backoff=ONCE)
        if policy == "Never" or deleting:
            assert (await waited).exit_code == code
        else:
            with pytest.raises(PodDeletedError, match="may have been started again after the exit"):
                await waited


RULE = {"action": "Restart", "exitCodes": {"operator": "In", "values": [255]}}
OTHERS = {"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [255]}}


@pytest.mark.parametrize(
    ("kind", "policy", "own", "codes"),
    [
        ("containers", "Never", {}, []),
        ("containers", "OnFailure", {}, [1, 255]),
        ("containers", "Always", {}, [0, 1, 255]),
        ("containers", None, {}, [0, 1, 255]),
        ("containers", "Always", {"restartPolicy": "Never"}, []),
        ("containers", "Never", {"restartPolicy": "Never", "restartPolicyRules": [RULE]}, [255]),
        ("containers", "Never", {"restartPolicy": "Never", "restartPolicyRules": [OTHERS]}, [0, 1]),
        ("initContainers", "Never", {}, []),
        ("initContainers", "OnFailure", {}, [1, 255]),
        ("initContainers", "Always", {}, [1, 255]),
        ("initContainers", "Never", {"restartPolicy": "Always"}, [0, 1, 255]),
        ("ephemeralContainers", "Always", {}, []),
    ],
)
def test_may_restart_follows_restart_policies_and_rules(
    kind: str, policy: str | None, own: Json, codes: list[int]
) -> None:
    found = {"spec": {"restartPolicy": policy, "containers": [], kind: [{"name": "c", **own}]}}
    assert [code for code in (0, 1, 255) if may_restart(found, "c", code)] == codes
