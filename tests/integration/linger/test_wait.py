"""`linger wait` with servers and name servers that answer, late, wrongly or not at all."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.support.linger_process import AN_HOUR, address, logged, wait_arguments
from tests.support.name_server import (
    NO_SUCH_NAME,
    SERVER_FAILURE,
    Query,
    name_server,
    silent_dns_needed,
)
from tests.support.process import free_port, is_running, process_status
from tests.support.runc import TIGHT, Machine, with_limits
from tests.support.tls_listeners import (
    Answer,
    close_connection,
    dropping,
    listening,
    says,
    stay_silent,
)
from tests.support.waiting import TIMEOUT_SECONDS, await_that

OK = says(b"HTTP/1.1 200 OK\r\n")
TERMINATING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)


# Targets that answer.


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_tcp_target_that_accepts_a_connection_answers(linger: Path, host: str) -> None:
    with listening(stay_silent, host=host) as server:
        target = address(server)
        assert logged(linger, "--tcp", target) == [f"tcp {target} answers after N s"]
        await_that(lambda: server.connections == 1, "the connection is accepted")


@pytest.mark.parametrize(
    "status",
    [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 404 ", b"HTTP/1.1 503\r\n", b"HTTP/1.1 100 Continue\r\n"],
)
def test_http_target_answers_with_any_status(linger: Path, status: bytes) -> None:
    with listening(says(status)) as server:
        url = f"http://{address(server)}/x"
        assert logged(linger, "--http", url) == [f"http {url} answers after N s"]


@pytest.mark.parametrize(
    ("path", "sent"), [("", "/"), ("/", "/"), ("/a/b?c=d", "/a/b?c=d"), ("/a#b", "/a")]
)
def test_http_request_names_the_path_and_the_host(linger: Path, path: str, sent: str) -> None:
    received = []

    def answer(connection: socket.socket) -> None:
        received.append(connection.recv(4096).decode())
        connection.sendall(b"HTTP/1.1 200 OK\r\n")

    with listening(answer) as server:
        logged(linger, "--http", f"http://{address(server)}{path}")
        (request,) = received
        lines = request.split("\r\n")
        assert lines[:2] == [f"GET {sent} HTTP/1.1", f"Host: {address(server)}"]
        assert lines[-2:] == ["", ""]


def test_endless_headers_after_a_status_line_are_not_read(linger: Path) -> None:
    def endless(connection: socket.socket) -> None:
        says(b"HTTP/1.1 200 OK\r\n")(connection)
        with suppress(OSError):
            while True:
                connection.sendall(b"X: y\r\n" * 1000)

    with listening(endless) as server:
        url = f"http://{address(server)}/"
        assert logged(linger, "--http", url) == [f"http {url} answers after N s"]


@pytest.mark.parametrize(
    "before", [close_connection, says(b"garbage that is long enough"), says(b"HTTP/2.0 200")]
)
def test_http_target_is_asked_again_until_it_answers(linger: Path, before: Answer) -> None:
    with listening(before, before, OK) as server:
        url = f"http://{address(server)}/"
        assert logged(linger, "--http", url) == [f"http {url} answers after N s"]
        assert server.connections == 3


def test_tcp_target_that_does_not_listen_yet_is_tried_again(linger: Path) -> None:
    port = free_port()
    command = [str(linger), "wait", "--timeout", AN_HOUR, "--tcp", f"127.0.0.1:{port}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        (child,) = await_children(process.pid, 1)
        # The child process sleeps after the first refused connection.
        await_that(lambda: process_status(child, "State")[0] == "S", "it waits")
        with listening(stay_silent, port=port):
            _, told = process.communicate(timeout=TIMEOUT_SECONDS)
    assert re.fullmatch(rf"linger: tcp 127\.0\.0\.1:{port} answers after \d+\.\d s\n", told)


def children(pid: int) -> list[int]:
    """Return the process ids of the children of a process."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(each) for each in text.split()]


def await_children(pid: int, count: int) -> list[int]:
    await_that(lambda: len(children(pid)) == count, f"{count} child processes run")
    return children(pid)


def test_kubelet_is_awaited_beside_the_targets_with_its_own_timeout(linger: Path) -> None:
    with listening(stay_silent) as server:
        target = address(server)
        lines = logged(linger, "--tcp", target, "--kubelet", "1s", env={"HOST_IP": "127.0.0.9"})
    refused = "cannot be reached: Connection refused"
    assert lines == [
        f"tcp {target} answers after N s",
        f"timeout: the kubelet at 127.0.0.9 {refused}; continuing without it",
    ]


# Targets that do not answer.


def one_byte_each_second(connection: socket.socket) -> None:
    connection.settimeout(1)
    for byte in b"HTTP/1.1 200 OK\r\n":
        connection.sendall(bytes([byte]))
        with suppress(TimeoutError):
            while connection.recv(4096):
                pass
            return


@pytest.mark.parametrize(
    ("answer", "reasons"),
    [
        (stay_silent, {"does not answer"}),
        (one_byte_each_second, {"does not answer"}),
        (says(b"HTTP/1.1 2"), {"closes the connection"}),
        (
            close_connection,
            {"closes the connection", "breaks the connection: Connection reset by peer"},
        ),
        (says(b"SSH-2.0-OpenSSH_9.2\r\n"), {"does not speak HTTP/1"}),
        (says(b"HTTP/1.1 2x0 OK"), {"does not speak HTTP/1"}),
    ],
)  # fmt: skip
def test_timeout_exits_with_0_and_logs_the_reason(
    linger: Path, answer: Answer, reasons: set[str]
) -> None:
    with listening(answer) as server:
        url = f"http://{address(server)}/"
        started = time.monotonic()
        (line,) = logged(linger, "--http", url, timeout="2s")
        assert time.monotonic() - started >= 1.9
    # The timeout may pass during the last attempt.
    told = {*reasons, "does not answer", "cannot be reached: Operation timed out"}
    assert line in {f"timeout: http {url} {each}; continuing without it" for each in told}


def test_targets_that_hang_delay_no_other_target(linger: Path) -> None:
    with ExitStack() as stack:
        hanging = [stack.enter_context(listening(stay_silent)) for _ in range(7)]
        ready = stack.enter_context(listening(stay_silent))
        arguments = [part for each in hanging for part in ("--http", f"http://{address(each)}/")]
        # If one had to wait for another, the first line would be that of a timeout.
        command = [str(linger), "wait", "--timeout=1m", *arguments, "--tcp", address(ready)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert process.stderr.readline().startswith(f"linger: tcp {address(ready)} answers")
            await_that(lambda: all(each.connections for each in hanging), "all are asked")
            process.terminate()
            assert process.wait(TIMEOUT_SECONDS) == 0


def test_eight_targets_that_hang_end_at_one_timeout(linger: Path) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(listening(stay_silent)) for _ in range(8)]
        arguments = [part for each in servers for part in ("--http", f"http://{address(each)}/")]
        started = time.monotonic()
        lines = logged(linger, *arguments, timeout="3s")
        # One after the other, they would take 24 s.
        assert time.monotonic() - started < 20
    assert len(lines) == 8
    assert all("does not answer; continuing without it" in line for line in lines)


# Names.


def wait_for_name(
    linger: Path,
    directory: Path,
    answer: Callable[[Query], bytes | None],
    *lines: str,
    name: str = "db",
    timeout: str = AN_HOUR,
) -> tuple[list[str], list[str]]:
    """Return linger's lines, and the names that it has asked for, each once."""
    with name_server(directory, answer, *lines) as server:
        told = logged(linger, "--dns", name, around=(*server.command,), timeout=timeout)
    return told, list(dict.fromkeys(server.asked))


LOOP = b"\xc0\xff" * 30
CLUSTER = ("search ci.svc.cluster.local svc.cluster.local", "options ndots:5")


@silent_dns_needed
@pytest.mark.parametrize("found", ["192.0.2.1", "2001:db8::1"])
def test_name_is_found_by_search_domains(linger: Path, tmp_path: Path, found: str) -> None:
    def answer(query: Query) -> bytes:
        if query.name == "db.svc.cluster.local":
            return query.answer(found)
        return query.answer(code=NO_SUCH_NAME)

    told, asked = wait_for_name(linger, tmp_path, answer, *CLUSTER)
    assert told == ["dns db answers after N s"]
    assert asked == ["db.ci.svc.cluster.local", "db.svc.cluster.local"]


@silent_dns_needed
@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("sts.example.com.", ["sts.example.com"]),
        ("a.b.c.d.e.f", ["a.b.c.d.e.f"]),
        (f"{'a.' * 126}a", [f"{'a.' * 126}a"]),
    ],
    ids=["a final dot", "as many dots as ndots", "253 characters"],
)
def test_absolute_name_is_not_searched(
    linger: Path, tmp_path: Path, name: str, asked: list[str]
) -> None:
    told, names = wait_for_name(
        linger, tmp_path, lambda query: query.answer("192.0.2.1"), *CLUSTER, name=name
    )
    assert told == [f"dns {name} answers after N s"]
    assert names == asked


@silent_dns_needed
@pytest.mark.parametrize("code", [NO_SUCH_NAME, SERVER_FAILURE])
def test_name_is_looked_up_again_until_it_exists(linger: Path, tmp_path: Path, code: int) -> None:
    queries = []

    def answer(query: Query) -> bytes:
        queries.append(query)
        return query.answer("192.0.2.1", code=code if len(queries) < 6 else 0)

    told, _ = wait_for_name(linger, tmp_path, answer, "options timeout:1")
    assert told == ["dns db answers after N s"]


@silent_dns_needed
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda query: query.answer(code=NO_SUCH_NAME), "the name does not exist"),
        (lambda query: query.answer(), "the name has no address"),
        (lambda _query: None, "the DNS server does not answer"),
        (lambda query: b"\0" * len(query.packet), "the DNS server does not answer"),
        # The name of the record is a pointer to itself.
        (
            lambda query: b"".join(
                [query.packet[:2], b"\x81\x80\0\1\0\1\0\0\0\0", query.packet[12:], LOOP]
            ),
            "the name has no address",
        ),
        # UDP answers have at most 65,507 bytes. A longer one than a query asks for is truncated.
        (
            lambda query: query.answer(*["192.0.2.1"] * 4_000).ljust(65_507, b"\xff"),
            "the DNS server does not answer",
        ),
    ],
    ids=["no name", "no address", "silence", "another query", "pointer loop", "64 KiB"],
)  # fmt: skip
def test_name_that_is_not_resolved_ends_at_the_timeout(
    linger: Path, tmp_path: Path, answer: Callable[[Query], bytes | None], reason: str
) -> None:
    """The resolver itself would block for 30 s."""
    told, _ = wait_for_name(linger, tmp_path, answer, "options timeout:30 attempts:5", timeout="2s")
    assert told == [f"timeout: dns db cannot be resolved: {reason}; continuing without it"]


@silent_dns_needed
def test_address_that_does_not_answer_leaves_time_for_the_next_one(
    linger: Path, tmp_path: Path
) -> None:
    with (
        dropping("127.0.0.2") as silent,
        listening(stay_silent, port=silent.port),
        name_server(tmp_path, lambda query: query.answer(silent.host, "127.0.0.1")) as server,
    ):
        target = f"db:{silent.port}"
        told = logged(linger, "--tcp", target, around=(*server.command,))
    assert told == [f"tcp {target} answers after N s"]


# Arguments. An exit code other than 0 would fail the pod.


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--tcp", "a"], "not a target: a"),
        (["--tcp", "a:0"], "not a target: a:0"),
        (["--tcp", "a:65536"], "not a target: a:65536"),
        (["--tcp", ":80"], "not a target: :80"),
        (["--tcp", "[::1:80"], "not a target: [::1:80"),
        (["--tcp", "[::1]80"], "not a target: [::1]80"),
        (["--tcp", f"{'a' * 255}:80"], f"not a target: {'a' * 255}:80"),
        (["--http", "https://a/"], "not a target: https://a/"),
        (["--http", "http://"], "not a target: http://"),
        (["--http", "http:///a"], "not a target: http:///a"),
        (["--http", "http://a?b"], "not a target: http://a?b"),
        (["--http", "http://a/ b"], "not a target: http://a/ b"),
        (["--http", f"http://a/{'b' * 504}"], f"not a target: http://a/{'b' * 504}"),
        (["--dns", ""], "not a target: "),
        (["--dns", "a" * 255], f"not a target: {'a' * 255}"),
        (["--timeout", "1"], "not a duration: 1"),
        (["--kubelet", "x"], "not a duration: x"),
        (["--dns"], "a value is missing after --dns"),
        (["--udp", "a:1"], "unknown argument --udp"),
    ],
)
def test_argument_that_cannot_be_used_is_logged_and_ignored(
    linger: Path, arguments: list[str], line: str
) -> None:
    with listening(stay_silent) as server:
        target = address(server)
        told = logged(linger, "--tcp", target, *arguments)
    assert f"tcp {target} answers after N s" in told
    assert f"ignored: {line}" in told


def test_target_after_the_sixteenth_is_ignored(linger: Path) -> None:
    with listening(stay_silent) as server:
        target = address(server)
        told = logged(linger, *["--tcp", target] * 17)
    assert (
        told == [f"ignored: too many targets: {target}"] + [f"tcp {target} answers after N s"] * 16
    )


def test_wait_without_a_target_ends_at_once(linger: Path) -> None:
    assert logged(linger) == []


@pytest.mark.parametrize("host", [None, "node.example"])
def test_kubelet_without_an_address_is_not_awaited(linger: Path, host: str | None) -> None:
    told = logged(linger, "--kubelet", AN_HOUR, env={"HOST_IP": host} if host else {})
    assert told == [f"not waiting for the kubelet: HOST_IP is not an address: {host or ''}"]


# Processes.


@pytest.mark.parametrize("number", TERMINATING)
def test_termination_signal_ends_all_processes_at_once_with_exit_code_0(
    linger: Path, number: signal.Signals
) -> None:
    with listening(stay_silent) as server:
        url = f"http://{address(server)}/"
        with subprocess.Popen([linger, "wait", "--http", url, "--http", f"{url}b"]) as process:
            started = await_children(process.pid, 2)
            await_that(lambda: server.connections == 2, "linger has connected")
            process.send_signal(number)
            assert process.wait(TIMEOUT_SECONDS) == 0
            await_that(lambda: not any(map(is_running, started)), "the child processes have ended")


def test_killed_wait_leaves_no_child_process(linger: Path) -> None:
    with listening(stay_silent) as server:
        command = [str(linger), "wait", "--http", f"http://{address(server)}/"]
        with subprocess.Popen(command) as process:
            (child,) = await_children(process.pid, 1)
            await_that(lambda: server.connections == 1, "linger has connected")
            process.kill()
            process.wait(TIMEOUT_SECONDS)
            await_that(lambda: not is_running(child), "the child process has ended")


@pytest.mark.needs("root")
def test_target_without_a_process_of_its_own_is_not_awaited(linger: Path, tmp_path: Path) -> None:
    """The user has no further process."""
    uid = 61_000 + os.getpid() % 4_000
    tmp_path.chmod(0o755)
    with listening(stay_silent) as server:
        limit = ("prlimit", "--nproc=1", "setpriv", f"--reuid={uid}", "--clear-groups")
        told = logged(linger, "--tcp", address(server), around=limit)
    assert told == [
        f"cannot fork: Resource temporarily unavailable; not waiting for tcp {address(server)}"
    ]


@with_limits
def test_twelve_targets_fit_into_the_smallest_limits(machine: Machine) -> None:
    """A policy has at most eight, and a pod adds at most four."""
    with listening(OK) as server:
        url = f"http://{address(server)}/"
        command = ["/linger", "wait", "--timeout", AN_HOUR, *["--http", url] * 12]
        code, out, err = machine.run(command, uid=machine.unprivileged_uid, resources=TIGHT)
    assert (code, out) == (0, "")
    assert len(re.findall(rf"http {re.escape(url)} answers after", err)) == 12


@pytest.mark.parametrize(
    "around", [[], ["/linger", "--min-lifetime", AN_HOUR, "--"]], ids=["unwrapped", "wrapped"]
)
@pytest.mark.parametrize("number", TERMINATING)
def test_termination_signal_ends_a_container_at_once(
    machine: Machine, around: list[str], number: signal.Signals
) -> None:
    with listening(stay_silent) as server:
        targets = ["wait", "--http", f"http://{address(server)}/"]
        for arguments in (targets, wait_arguments(server)):
            before = server.connections
            command = [*around, "/linger", *arguments]
            with machine.start(command, env={"HOST_IP": server.host}) as container:
                await_that(lambda: server.connections > before, "linger has connected")  # noqa: B023
                container.signal(number)
                assert container.finish() == (0, "", "")
