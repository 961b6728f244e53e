"""Tests of `podsettle logs` with a real API server and a fake kubelet."""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.fake_kubelet import Kubelet, Log, Record, read_logs, stamp
from tests.support.kube.cluster import KubeCluster
from tests.support.kubelet_status import RUNNING, Pod, Run, running, terminated, waiting
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import await_that

pytestmark = pytest.mark.slow

FOLLOW = ("logs", "step-1", "-f", "--backoff-first", "50ms", "--backoff-factor", "1")
T = 1_780_000_000_000_000_000
SECOND = 1_000_000_000


@pytest.fixture
def pod(cluster: KubeCluster, namespace: str, kubelet: Kubelet) -> Pod:
    """A pod with a running container, on the node of the fake kubelet."""
    found = Pod(cluster, namespace, node=kubelet.node)
    found.say("Running", {"step": RUNNING}, run="containerd://1")
    return found


def lines(count: int, begin: int = T, text: str = "line") -> list[Record]:
    """Return `count` lines, 100 ms apart."""
    return [Record(begin + n * SECOND // 10, f"{text} {n}".encode()) for n in range(count)]


def text(records: list[Record]) -> bytes:
    return b"".join(record.text + b"\n" * (not record.partial) for record in records)


def finish(kubelet: Kubelet, pod: Pod, code: int = 0) -> None:
    """End the log, and write the terminated state into the status of the pod."""
    kubelet.current.end()
    phase = "Failed" if code else "Succeeded"
    pod.say(phase, {"step": terminated(code, containerID="containerd://1")}, run="containerd://1")


def test_log_is_complete_although_the_kubelet_has_no_serving_certificate_at_first(
    cluster: KubeCluster, namespace: str, kubelet: Kubelet, pod: Pod, run: Run
) -> None:
    kubelet.certificate_issued = False
    # kubectl prints the error that the report quotes.
    kubectl = cluster.kubectl("logs", "step-1", "-n", namespace)
    assert kubectl.returncode == 1
    assert f"https://127.0.0.1:{kubelet.port}/containerLogs/" in kubectl.stderr
    assert kubectl.stderr.endswith("remote error: tls: internal error\n")
    written = lines(25)
    with run(*FOLLOW) as command:
        command.await_word("remote error: tls: internal error", times=3)
        assert not kubelet.queries
        kubelet.break_after = [len(stamp(T)) * 12 + 70]
        kubelet.certificate_issued = True
        kubelet.current.write(*written[:20])
        await_that(lambda: len(kubelet.queries) > 1, "the stream is opened again")
        kubelet.current.write(*written[20:])
        command.await_output(written[-1].text)
        finish(kubelet, pod)
        assert command.end() == 0
        assert command.stdout == text(written)


def test_log_is_complete_although_the_api_server_connection_fails_and_breaks(
    cluster: KubeCluster, namespace: str, kubelet: Kubelet, pod: Pod, tmp_path: Path
) -> None:
    with TcpProxy.to("127.0.0.1", cluster.port) as proxy:
        url = f"https://127.0.0.1:{proxy.port}"
        kubeconfig = cluster.write_kubeconfig(tmp_path / "kubeconfig", server=url)
        proxy.alerts = True
        written = lines(12)
        arguments = (*FOLLOW, "-n", namespace)
        with running(kubeconfig, tmp_path, *arguments) as command:
            command.await_word("TLSV1_ALERT_INTERNAL_ERROR", times=3)
            proxy.alerts = False
            kubelet.current.write(*written[:5])
            command.await_output(written[4].text)
            proxy.alerts = True
            proxy.cut()
            command.await_word("TLSV1_ALERT_INTERNAL_ERROR", times=5)
            proxy.alerts = False
            kubelet.current.write(*written[5:])
            command.await_output(written[-1].text)
            finish(kubelet, pod)
            assert command.end() == 0
            assert command.stdout == text(written)


def test_broken_streams_lose_and_repeat_no_line(kubelet: Kubelet, pod: Pod, run: Run) -> None:
    written = [
        Record(T, b"two of"),
        Record(T, b"one moment"),
        Record(T, b"two of"),
        Record(T + 1, b""),
        Record(T + SECOND, b"a long ", partial=True),
        Record(T + 4 * SECOND, b"line", partial=True),
        Record(T + 5 * SECOND, b" of three parts"),
        Record(T + 5 * SECOND + 7, bytes(range(256)).replace(b"\n", b"\r")),
        Record(T + 6 * SECOND, b"no end of line", partial=True),
    ]
    whole = b"".join(read_logs(written, 0, stamps=True))
    kubelet.break_after = list(range(1, len(whole), 23))
    kubelet.current.write(*written)
    with run(*FOLLOW) as command:
        await_that(lambda: not kubelet.break_after, "no stream breaks any more")
        finish(kubelet, pod)
        assert command.end() == 0
        assert command.stdout == text(written)
    begun = datetime.fromtimestamp(T // SECOND, UTC)
    assert kubelet.queries[-1]["sinceTime"] == f"{begun + timedelta(seconds=5):%FT%TZ}"


def test_long_line_of_binary_output_is_unchanged(kubelet: Kubelet, pod: Pod, run: Run) -> None:
    noise = random.Random(1).randbytes(3_000_000)
    parts = [noise[at : at + 16384].replace(b"\n", b" ") for at in range(0, len(noise), 16384)]
    written = [Record(T + n, part, partial=True) for n, part in enumerate(parts)]
    written.append(Record(T + SECOND, b"end"))
    kubelet.break_after = [1_000_000, 2_000_000]
    kubelet.current.write(*written)
    with run(*FOLLOW) as command:
        command.await_output(b"end\n")
        finish(kubelet, pod)
        assert command.end() == 0
        assert command.stdout == text(written)


def test_ended_stream_is_opened_again_until_the_container_has_terminated(
    kubelet: Kubelet, pod: Pod, run: Run
) -> None:
    """The API server ends its response without an error although the kubelet's stream broke."""
    written = lines(3)
    kubelet.current.write(*written)
    with run(*FOLLOW) as command:
        command.await_output(written[-1].text)
        kubelet.current.end()
        command.await_word("ended, and the container has no terminated state", times=2)
        late = Record(T + SECOND, b"what a broken connection kept back")
        kubelet.current.write(late)
        command.await_output(late.text)
        finish(kubelet, pod)
        assert command.end() == 0
        assert command.stdout == text([*written, late])


def test_lines_written_after_the_last_stream_broke_are_fetched(
    kubelet: Kubelet, pod: Pod, run: Run
) -> None:
    first, last = lines(2)
    kubelet.break_after = [len(stamp(T)) + len(first.text) + 1]
    kubelet.current.write(first, last)
    finish(kubelet, pod)
    with run(*FOLLOW) as command:
        assert command.end() == 0
        assert command.stdout == text([first, last])
    assert "follow" not in kubelet.queries[-1]


def test_logs_with_follow_wait_until_the_container_starts(
    cluster: KubeCluster, namespace: str, kubelet: Kubelet, run: Run
) -> None:
    pod = Pod(cluster, namespace, node=kubelet.node)
    with run("logs", "step-1") as command:
        assert command.end() == 2
        assert "container step has not started: Pending" in command.stderr
    with run(*FOLLOW) as command:
        pod.say("Pending", {"step": waiting("ImagePullBackOff")})
        command.await_word("ImagePullBackOff; still waiting")
        assert not kubelet.queries
        kubelet.current.write(*lines(1))
        pod.say("Running", {"step": RUNNING})
        command.await_output(b"line 0\n")
        finish(kubelet, pod)
        assert command.end() == 0


def test_temporary_errors_of_the_kubelet_are_retried(kubelet: Kubelet, pod: Pod, run: Run) -> None:
    kubelet.refuse = (404, 'pod "step-1" does not exist')
    with run(*FOLLOW) as command:
        command.await_word("404: ", times=2)
        kubelet.refuse = (400, "container is waiting to start: ContainerCreating")
        command.await_word("is waiting to start: ContainerCreating", times=2)
        kubelet.refuse = (503, "busy")
        command.await_word("503: ", times=2)
        kubelet.refuse = None
        kubelet.current.write(*lines(1))
        finish(kubelet, pod)
        assert command.end() == 0
        assert command.stdout == b"line 0\n"


@pytest.mark.usefixtures("pod")
def test_persistent_errors_exit_with_2_within_the_back_off(kubelet: Kubelet, run: Run) -> None:
    kubelet.certificate_issued = False
    with run(*FOLLOW, "--backoff-total", "3s") as command:
        assert command.end() == 2
        assert command.stderr.splitlines()[-1].endswith("remote error: tls: internal error")
        assert "trying again" in command.stderr
    kubelet.certificate_issued = True
    kubelet.refuse = (403, "Forbidden")
    with run(*FOLLOW) as command:
        assert command.end() == 2
        assert "podsettle: the API server answered 403" in command.stderr
        assert "trying again" not in command.stderr


def test_pod_deleted_at_the_end_of_its_log_exits_with_0(
    kubelet: Kubelet, pod: Pod, run: Run
) -> None:
    with run(*FOLLOW) as command:
        kubelet.current.write(*lines(1))
        command.await_output(b"line 0\n")
        pod.delete()
        kubelet.current.end()
        assert command.end() == 0
        assert "the pod was deleted" in command.stderr


def test_pod_deleted_while_its_log_is_unreadable_is_an_error(
    kubelet: Kubelet, pod: Pod, run: Run
) -> None:
    kubelet.certificate_issued = False
    with run(*FOLLOW) as command:
        command.await_word("tls: internal error")
        pod.delete()
        assert command.end() == 2
        assert "was deleted before its log was read to the end" in command.stderr


def test_restart_of_the_container_ends_the_log_after_the_first_run(
    kubelet: Kubelet, pod: Pod, run: Run
) -> None:
    written = lines(4)
    kubelet.current.write(*written[:2])
    with run(*FOLLOW) as command:
        command.await_output(written[1].text)
        # While the stream is down, the container writes more, ends and is restarted.
        kubelet.previous.records = written
        kubelet.previous.ended = True
        last = terminated(1, containerID="containerd://1")
        pod.say("Running", {"step": RUNNING}, run="containerd://2", last=last, restarts=1)
        broken, kubelet.current = kubelet.current, Log()
        kubelet.current.write(Record(T + 9 * SECOND, b"of the next run"))
        broken.end()
        assert command.end() == 0
        assert command.stdout == text(written)


def test_log_of_a_run_before_the_previous_one_is_reported_as_lost(
    kubelet: Kubelet, pod: Pod, run: Run
) -> None:
    kubelet.current.write(*lines(1))
    with run(*FOLLOW) as command:
        command.await_output(b"line 0\n")
        last = terminated(1, containerID="containerd://2")
        pod.say("Running", {"step": RUNNING}, run="containerd://3", last=last, restarts=2)
        kubelet.current.end()
        assert command.end() == 2
        assert "the log of the previous run is lost" in command.stderr


@pytest.mark.usefixtures("pod")
def test_logs_without_follow_end_at_the_last_written_line(kubelet: Kubelet, run: Run) -> None:
    written = lines(3)
    kubelet.current.write(*written)
    with run("logs", "step-1", "--timestamps") as command:
        assert command.end() == 0
        assert command.stdout == b"".join(stamp(at) + line + b"\n" for at, line, _ in written)
    assert ["follow" in query for query in kubelet.queries] == [False]


@pytest.mark.usefixtures("pod")
def test_closed_standard_output_ends_logs_without_a_message(
    cluster: KubeCluster, namespace: str, kubelet: Kubelet, tmp_path: Path
) -> None:
    reading, writing = os.pipe()
    arguments = (*FOLLOW, "-n", namespace)
    with running(cluster.kubeconfig, tmp_path, *arguments, stdout=writing) as command:
        os.close(writing)
        kubelet.current.write(*lines(1))
        assert os.read(reading, 100) == b"line 0\n"
        os.close(reading)
        kubelet.current.write(*lines(1, T + SECOND))
        assert command.end() == 1
        assert command.stderr == ""


def test_tail_begins_before_the_end_and_a_resumed_stream_adds_no_older_line(
    kubelet: Kubelet, pod: Pod, run: Run
) -> None:
    # All lines are of one second, from which a resumed stream begins.
    written = lines(8)
    kubelet.current.write(*written[:5])
    whole = [len(stamp(T)) + len(record.text) + 1 for record in written]
    kubelet.break_after = [sum(whole[:4]) + 3]
    with run(*FOLLOW, "--tail", "2") as command:
        command.await_output(written[4].text)
        kubelet.current.write(*written[5:])
        command.await_output(written[-1].text)
        finish(kubelet, pod)
        assert command.end() == 0
        assert command.stdout == text(written[3:])
    assert [query.get("tailLines") for query in kubelet.queries[:2]] == ["2", None]


@pytest.mark.usefixtures("pod")
def test_since_leaves_out_older_lines(kubelet: Kubelet, run: Run) -> None:
    now = int(datetime.now(UTC).timestamp()) * SECOND
    old, new = Record(now - 7_200 * SECOND, b"old"), Record(now - 60 * SECOND, b"new")
    kubelet.current.write(old, new)
    with run("logs", "step-1", "--since", "1h") as command:
        assert command.end() == 0
        assert command.stdout == b"new\n"
    assert kubelet.queries[-1]["sinceSeconds"] == "3600"


def test_previous_reads_the_run_before_the_last_restart(
    kubelet: Kubelet, pod: Pod, run: Run
) -> None:
    kubelet.previous.write(*lines(3, text="previous"))
    with run("logs", "step-1", "--previous") as command:
        assert command.end() == 2
        assert "container step has no previous run" in command.stderr
    last = terminated(1, containerID="containerd://1")
    pod.say("Running", {"step": RUNNING}, run="containerd://2", last=last, restarts=1)
    with run("logs", "step-1", "-p") as command:
        assert command.end() == 0
        assert command.stdout == text(lines(3, text="previous"))
