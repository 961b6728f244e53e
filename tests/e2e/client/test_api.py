"""Tests of `webhook.client` as a library, on a real API server."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.fake_kubelet import Kubelet, Record
from tests.support.kube.cluster import KubeCluster
from tests.support.kubelet_status import RUNNING, Pod, terminated
from webhook.client import (
    ApiError,
    ApiServer,
    Backoff,
    PodName,
    PodNotFoundError,
    Termination,
    Unreachable,
    copy_logs,
    wait_terminated,
)
from webhook.client.pod_watch import PodWatch, watch_pod
from webhook.client.retry import StreamSettings, is_retryable

T = 1_780_000_000_000_000_000
ONCE = Backoff(total=0)


@pytest.fixture(autouse=True)
def kubeconfig(cluster: KubeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))


async def test_library_copies_the_log_and_returns_the_termination(
    cluster: KubeCluster, namespace: str, kubelet: Kubelet
) -> None:
    Pod(cluster, namespace, node=kubelet.node).say("Failed", {"step": terminated(3, "OOMKilled")})
    kubelet.current.write(Record(T, b"out of"), Record(T, b"memory"))
    kubelet.current.end()
    got: list[bytes] = []
    async with await ApiServer.connect() as server:
        pod = PodName(namespace, "step-1")
        await copy_logs(server, pod, got.append, follow=True)
        ended = await wait_terminated(server, pod)
    assert b"".join(got) == b"out of\nmemory\n"
    assert ended == Termination("step", 3, "OOMKilled", "2026-05-30T10:01:00Z")


async def test_copy_logs_raises_the_error_of_its_write_function_without_a_retry(
    cluster: KubeCluster, namespace: str, kubelet: Kubelet
) -> None:
    """A broken connection also raises OSError, but this one is not retried."""
    Pod(cluster, namespace, node=kubelet.node).say("Running", {"step": RUNNING})
    kubelet.current.write(Record(T, b"text"))

    def full(_data: bytes) -> None:
        raise OSError(28, "No space left on device")

    async with await ApiServer.connect() as server:
        with pytest.raises(OSError, match="No space left"):
            await copy_logs(server, PodName(namespace, "step-1"), full, follow=True)
    assert len(kubelet.queries) == 1


async def test_pod_name_with_slashes_or_a_query_cannot_change_the_request_path(
    namespace: str,
) -> None:
    async with await ApiServer.connect() as server:
        for name in ("none", "../../../namespaces/default", "a?watch=1"):
            with pytest.raises((PodNotFoundError, ApiError), match=r"does not exist|404|400"):
                await wait_terminated(server, PodName(namespace, name), backoff=ONCE)


@pytest.mark.slow
async def test_watch_with_an_expired_resource_version_reads_the_pod_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with KubeCluster.start() as own:
        monkeypatch.setenv("KUBECONFIG", str(own.kubeconfig))
        pod = Pod(own, "default")
        async with (
            await ApiServer.connect() as server,
            watch_pod(
                server, PodName("default", "step-1"), Backoff(first=0.05), StreamSettings()
            ) as watch,
        ):
            watch.resource_version = "1"
            own.kill_apiserver()
            own.start_apiserver()
            pod.say("Failed", {"step": terminated(1)})
            async with asyncio.timeout(60):
                while watch.pod["status"]["phase"] != "Failed":
                    await watch.wait_for_change()


async def test_replaced_pod_with_the_same_name_is_detected_by_its_uid(
    cluster: KubeCluster, namespace: str
) -> None:
    """A watch that was not open during the replacement reports no deletion."""
    pod = Pod(cluster, namespace)
    async with await ApiServer.connect() as server:
        watch = PodWatch(server, PodName(namespace, "step-1"), ONCE)
        await watch.start()
        pod.delete()
        Pod(cluster, namespace).say("Succeeded", {"step": terminated(0)})
        await watch.refresh()
        assert watch.deleted
        assert watch.pod["status"]["phase"] == "Pending"
        assert not watch.has_final_state


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ApiError(500, "remote error: tls: internal error"), True),
        (ApiError(429, "too many requests"), True),
        (ApiError(403, "forbidden"), False),
        (ApiError(404, "not found"), False),
        (Unreachable("connection refused"), True),
        (ValueError(), False),
    ],
)
def test_only_temporary_errors_are_retryable(error: Exception, passes: bool) -> None:
    assert is_retryable(error) == passes


async def test_default_back_off_has_the_parameters_of_woodpecker() -> None:
    """First 500 ms, factor 1.5, jitter 50 %, one minute in total, and at most a minute's pause."""
    pauses: list[float] = []

    async def fail() -> None:
        raise Unreachable("gone")

    async def note(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 50:
            raise ValueError("enough")

    with pytest.raises(Unreachable):
        await Backoff()(fail, note)
    for number, pause in enumerate(pauses):
        usual = min(0.5 * 1.5**number, 60)
        assert usual / 2 <= pause <= usual * 1.5
    assert len(pauses) >= 10
    assert len({pause / 1.5**number for number, pause in enumerate(pauses)}) > 1


@pytest.mark.parametrize(
    "wrong", [{"first": -1}, {"factor": 0.9}, {"jitter": 1.5}, {"total": -1}, {"max_pause": -1}]
)
def test_back_off_with_an_invalid_parameter_is_an_error(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="back-off"):
        Backoff(**wrong)
