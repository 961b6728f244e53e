"""`linger wait-kubelet` against real TLS servers, and against what a kubelet may answer instead."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
import trustme

from tests.support.process import free_port
from tests.support.runc import TIGHT, Machine, with_limits
from tests.support.tls_listeners import (
    HANDSHAKE_FAILURE,
    INTERNAL_ERROR,
    PATIENCE,
    Answer,
    Listener,
    alert,
    handshake,
    hang_up,
    listening,
    openssl_server,
    says,
    server_context,
    stay_silent,
)
from tests.support.wait_kubelet import AN_HOUR, READY, said, wait, waiting
from tests.support.waiting import await_that

NO_CERTIFICATE_YET = alert(INTERNAL_ERROR)


# Servers that are ready.


@pytest.mark.parametrize("version", [None, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("key", trustme.KeyType)
def test_a_server_that_begins_a_handshake_is_ready(
    linger: Path, key: trustme.KeyType, version: ssl.TLSVersion | None
) -> None:
    with listening(handshake(server_context(key=key, version=version))) as server:
        assert said(linger, server) == f"the kubelet at 127.0.0.1 {READY}"
        assert server.connections == 1


def test_so_it_is_on_ipv6(linger: Path) -> None:
    with listening(handshake(server_context()), host="::1") as server:
        assert said(linger, server) == f"the kubelet at ::1 {READY}"


@pytest.mark.parametrize(
    "options",
    [
        ["-tls1_2"],
        ["-tls1_3"],
        ["-tls1_3", "-groups", "X25519"],
        ["-tls1_3", "-groups", "P-256"],  # as in FIPS mode
        ["-tls1_2", "-groups", "P-256"],
        ["-tls1_2", "-legacy_renegotiation", "-cipher", "ECDHE+AES256"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_openssl_takes_the_hello(
    linger: Path, options: list[str], host: str, tmp_path: Path
) -> None:
    with openssl_server(tmp_path, *options) as server:
        server.host = host
        assert said(linger, server) == f"the kubelet at {host} {READY}"


# Servers that are ready later.


@pytest.mark.parametrize(
    "before",
    [
        NO_CERTIFICATE_YET,
        alert(INTERNAL_ERROR, version=b"\x03\x01"),
        hang_up,
        says(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        says(b"garbage"),
        says(b"\x16\x03\x03\0\4\x0e\0\0\0"),
        says(b"\x16\x02\x00\0\4\x02\0\0\0"),
    ],
    ids=[
        "no certificate yet", "the same in an older record", "hangs up", "http", "garbage",
        "another message", "another protocol",
    ],
)  # fmt: skip
def test_what_may_pass_is_waited_for(linger: Path, before: Answer) -> None:
    with listening(before, before, handshake(server_context())) as server:
        assert said(linger, server) == f"the kubelet at 127.0.0.1 {READY}"
        assert server.connections == 3


def test_one_that_accepts_and_says_nothing_is_asked_again(linger: Path) -> None:
    with listening(stay_silent, handshake(server_context())) as server:
        assert said(linger, server) == f"the kubelet at 127.0.0.1 {READY}"
        assert server.connections == 2


def test_a_kubelet_that_does_not_listen_yet_is_waited_for(linger: Path) -> None:
    port = free_port()
    command = [str(linger), *waiting(Listener("127.0.0.1", port))]
    with subprocess.Popen(
        command, env={"HOST_IP": "127.0.0.1"}, stderr=subprocess.PIPE, text=True
    ) as process:
        status = Path(f"/proc/{process.pid}/stat")
        # It sleeps once it has been refused.
        await_that(lambda: status.read_text().rpartition(")")[2].split()[0] == "S", "it waits")
        with listening(handshake(server_context()), port=port):
            _, told = process.communicate(timeout=PATIENCE)
    assert told == f"linger: the kubelet at 127.0.0.1 {READY}\n"


# Servers that never are.


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (NO_CERTIFICATE_YET, "has no serving certificate yet (TLS alert 80)"),
        (hang_up, ("closes the connection", "breaks the connection: Connection reset by peer")),
        (says(b"SSH-2.0-OpenSSH_9.2\r\n"), "does not speak TLS"),
    ],
    ids=["no certificate", "hangs up", "garbage"],
)
def test_at_the_timeout_it_ends_well_and_says_why(
    linger: Path, answer: Answer, why: str | tuple[str, ...]
) -> None:
    def ended(*reasons: str) -> set[str]:
        end = "timeout: the kubelet at 127.0.0.1 {}; continuing without it"
        return {end.format(reason) for reason in reasons}

    expected = ended(*((why,) if isinstance(why, str) else why))
    told = set[str]()
    # Time may be up before the last attempt has its answer, and even before it begins.
    for _ in range(3):
        with listening(answer) as server:
            started = time.monotonic()
            told.add(said(linger, server, timeout="3s"))
            assert time.monotonic() - started >= 2.9
            assert server.connections > 1
        if told & expected:
            break
    assert told & expected
    assert told <= expected | ended("does not answer", "cannot be reached: Operation timed out")


def test_silence_ends_at_the_timeout_too(linger: Path) -> None:
    with listening(stay_silent) as server:
        assert said(linger, server, timeout="300ms") == (
            "timeout: the kubelet at 127.0.0.1 does not answer; continuing without it"
        )


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_so_does_refusal(linger: Path, host: str) -> None:
    assert said(linger, Listener(host, free_port()), timeout="300ms") == (
        f"timeout: the kubelet at {host} cannot be reached: Connection refused; "
        "continuing without it"
    )


def test_so_does_a_kubelet_that_cannot_be_reached(linger: Path) -> None:
    """As behind a firewall that drops: a queue that is full answers nobody."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port = server.getsockname()[1]

        def is_taken() -> bool:
            client = stack.enter_context(socket.socket())
            client.settimeout(0.2)
            return client.connect_ex(("127.0.0.1", port)) == 0

        while is_taken():
            pass
        assert said(linger, Listener("127.0.0.1", port), timeout="300ms") == (
            "timeout: the kubelet at 127.0.0.1 cannot be reached: Operation timed out; "
            "continuing without it"
        )


def test_half_an_answer_is_none(linger: Path) -> None:
    def half(connection: socket.socket) -> None:
        says(b"\x16\x03\x03\0\x7a")(connection)
        stay_silent(connection)

    with listening(half) as server:
        assert "does not answer" in said(linger, server, timeout="300ms")


@pytest.mark.parametrize("number", [HANDSHAKE_FAILURE, 0, 7, 112, 255])
def test_an_alert_that_will_not_pass_is_not_waited_out(linger: Path, number: int) -> None:
    with listening(alert(number)) as server:
        assert said(linger, server) == (
            f"not waiting: the kubelet at 127.0.0.1 refuses the handshake with TLS alert {number}"
        )
        assert server.connections == 1


def test_a_server_with_none_of_the_groups_cannot_ask_for_another(
    linger: Path, tmp_path: Path
) -> None:
    """It would by a HelloRetryRequest, which is a ServerHello that proves no certificate."""
    with openssl_server(tmp_path, "-tls1_3", "-groups", "P-384") as server:
        assert "refuses the handshake with TLS alert 40" in said(linger, server)


def test_it_backs_off(linger: Path) -> None:
    with listening(NO_CERTIFICATE_YET) as server:
        said(linger, server, timeout="2s")
        # After 0, 100, 300, 700, 1500 and 1900 ms; fewer on a machine that is slow.
        assert 2 <= server.connections <= 6


# Whatever else: the pod goes on.


@pytest.mark.parametrize("host", [None, "", "node.example", "10.0.0.1 ", "fe80::1%eth0", "1.2.3"])
def test_an_address_that_is_none_does_not_fail_the_pod(linger: Path, host: str | None) -> None:
    done = wait(linger, "wait-kubelet", host=host)
    assert (done.returncode, done.stdout) == (0, "")
    expected = f"linger: not waiting for the kubelet: HOST_IP is not an address: {host or ''}\n"
    assert done.stderr == expected


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP])
def test_told_to_end_it_ends_at_once_and_well(linger: Path, number: signal.Signals) -> None:
    with listening(stay_silent) as server:
        environment = {"HOST_IP": server.host}
        with subprocess.Popen([linger, *waiting(server)], env=environment) as process:
            await_that(lambda: server.connections, "linger has connected")
            process.send_signal(number)
            assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--timeout"],
        ["--timeout", "15"],
        ["--timeout="],
        ["--port", "0"],
        ["--port", "65536"],
        ["--port", "4294977546"],
        ["--port", "10250x"],
        ["--port", ""],
        ["--port", "-1"],
        ["--wait", "1s"],
        ["1s"],
    ],
)
def test_bad_usage_is_told(linger: Path, arguments: list[str]) -> None:
    done = wait(linger, "wait-kubelet", *arguments, host="127.0.0.1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "linger wait-kubelet [--timeout D] [--port N]" in done.stderr


def test_port_and_timeout_have_defaults(linger: Path) -> None:
    done = wait(linger, "wait-kubelet", "--timeout=0", host="127.0.0.1")
    assert done.returncode == 0
    shown = wait(linger, "--help", host=None).stdout
    assert "default 30s" in shown
    assert "default 10250" in shown


# As PID 1 of containers, which share the network of this machine.


def contained(listener: Listener, *around: str, timeout: str = AN_HOUR) -> list[str]:
    return ["/bin/env", f"HOST_IP={listener.host}", *around, "/linger", *waiting(listener, timeout)]


def _as_container(resources: Mapping[str, object] | None) -> str:
    return "tight limits" if resources else "no limits"


@pytest.mark.parametrize(
    "resources", [None, pytest.param(TIGHT, marks=with_limits)], ids=_as_container
)
def test_it_waits_as_any_user_on_a_read_only_root(
    machine: Machine, resources: Mapping[str, object] | None
) -> None:
    with listening(NO_CERTIFICATE_YET, handshake(server_context())) as server:
        code, out, err = machine.run(
            contained(server), uid=machine.unprivileged_uid, resources=resources
        )
    assert (code, out, err) == (0, "", f"linger: the kubelet at 127.0.0.1 {READY}\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    "around", [[], ["/linger", "--min-lifetime", AN_HOUR, "--"]], ids=["alone", "settled"]
)
def test_a_pod_that_is_deleted_is_not_held_up(
    machine: Machine, number: signal.Signals, around: list[str]
) -> None:
    with (
        listening(stay_silent) as server,
        machine.start(contained(server, *around)) as container,
    ):
        await_that(lambda: server.connections, "linger has connected")
        container.signal(number)
        assert container.finish() == (0, "", "")


def test_it_lives_as_long_as_it_is_told_to(machine: Machine) -> None:
    with listening(handshake(server_context())) as server:
        started = time.monotonic()
        settled = ["/linger", "--min-lifetime", "1s", "--"]
        code, _, err = machine.run(contained(server, *settled))
    assert time.monotonic() - started >= 1
    assert (code, err) == (0, f"linger: the kubelet at 127.0.0.1 {READY}\n")


def test_no_descriptor_is_left_behind(linger: Path) -> None:
    """One per attempt, if it were: the limit leaves room for the standard three and one more."""
    script = f"ulimit -n 4; exec '{linger}' \"$@\""
    with listening(*[NO_CERTIFICATE_YET] * 3, handshake(server_context())) as server:
        done = subprocess.run(
            ["sh", "-c", script, "sh", *waiting(server)],
            env={**os.environ, "HOST_IP": server.host},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert done.stderr == f"linger: the kubelet at 127.0.0.1 {READY}\n"
