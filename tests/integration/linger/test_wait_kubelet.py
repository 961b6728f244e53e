"""`linger wait-kubelet` with real TLS servers, and with servers that answer differently."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import pytest
import trustme

from tests.support.linger_process import READY, logged_line, wait_arguments
from tests.support.process import free_port, process_status, run
from tests.support.runc import TIGHT, Machine, with_limits
from tests.support.tls_listeners import (
    HANDSHAKE_FAILURE,
    INTERNAL_ERROR,
    Answer,
    Listener,
    alert,
    close_connection,
    dropping,
    handshake,
    listening,
    openssl_server,
    says,
    server_context,
    stay_silent,
)
from tests.support.waiting import TIMEOUT_SECONDS, await_that

pytestmark = pytest.mark.slow

NO_CERTIFICATE_YET = alert(INTERNAL_ERROR)


# Servers that are ready.


@pytest.mark.parametrize("version", [None, ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("key", trustme.KeyType)
def test_server_that_begins_a_handshake_is_ready(
    linger: Path, key: trustme.KeyType, version: ssl.TLSVersion | None
) -> None:
    with listening(handshake(server_context(key=key, version=version))) as server:
        assert logged_line(linger, server) == f"the kubelet at 127.0.0.1 {READY}"
        assert server.connections == 1


@pytest.mark.parametrize("scheme", [b"\x09\x04", b"\x09\x05", b"\x09\x06"])
def test_server_with_a_key_of_ml_dsa_is_ready(linger: Path, scheme: bytes) -> None:
    """Go 1.27 refuses the handshake if the client does not offer the scheme of the key."""

    def answer(connection: socket.socket) -> None:
        # The extension has its number, its length, and the length of the list.
        offered = connection.recv(4096).partition(b"\x00\x0d")[2]
        end = 4 + int.from_bytes(offered[2:4])
        is_offered = scheme in [offered[at : at + 2] for at in range(4, end, 2)]
        refusal = b"\x15\x03\x03\0\2\2" + bytes([HANDSHAKE_FAILURE])
        connection.sendall(b"\x16\x03\x03\0\4\2\0\0\0" if is_offered else refusal)

    with listening(answer) as server:
        assert logged_line(linger, server) == f"the kubelet at 127.0.0.1 {READY}"


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
def test_openssl_accepts_the_client_hello(linger: Path, options: list[str], tmp_path: Path) -> None:
    with openssl_server(tmp_path, *options) as server:
        assert logged_line(linger, server) == f"the kubelet at 127.0.0.1 {READY}"


# Servers that become ready later.


@pytest.mark.parametrize(
    "before",
    [
        NO_CERTIFICATE_YET,
        alert(INTERNAL_ERROR, version=b"\x03\x01"),
        close_connection,
        stay_silent,
        says(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        says(b"garbage"),
        says(b"\x16\x03\x03\0\4\x0e\0\0\0"),
        says(b"\x16\x02\x00\0\4\x02\0\0\0"),
    ],
    ids=[
        "no certificate yet", "no certificate yet, older record", "closed connection", "silence",
        "http", "garbage", "another message", "another protocol",
    ],
)  # fmt: skip
def test_temporary_failure_is_retried(linger: Path, before: Answer) -> None:
    with listening(before, before, handshake(server_context())) as server:
        assert logged_line(linger, server) == f"the kubelet at 127.0.0.1 {READY}"
        assert server.connections == 3


def test_kubelet_that_does_not_listen_yet_is_retried(linger: Path) -> None:
    port = free_port()
    command = [str(linger), *wait_arguments(Listener("127.0.0.1", port))]
    with subprocess.Popen(
        command, env={"HOST_IP": "127.0.0.1"}, stderr=subprocess.PIPE, text=True
    ) as process:
        # linger sleeps after the first refused connection.
        await_that(lambda: process_status(process.pid, "State")[0] == "S", "it waits")
        with listening(handshake(server_context()), port=port):
            _, told = process.communicate(timeout=TIMEOUT_SECONDS)
    assert told == f"linger: the kubelet at 127.0.0.1 {READY}\n"


# Servers that never become ready.


def half(connection: socket.socket) -> None:
    says(b"\x16\x03\x03\0\x7a")(connection)
    stay_silent(connection)


def refusing(host: str) -> AbstractContextManager[Listener]:
    return nullcontext(Listener(host, free_port()))


@pytest.mark.parametrize(
    ("server", "reasons"),
    [
        (
            partial(listening, NO_CERTIFICATE_YET),
            {"has no serving certificate yet (TLS alert 80)"},
        ),
        (
            partial(listening, close_connection),
            {"closes the connection", "breaks the connection: Connection reset by peer"},
        ),
        (partial(listening, says(b"SSH-2.0-OpenSSH_9.2\r\n")), {"does not speak TLS"}),
        (partial(listening, stay_silent), {"does not answer"}),
        (partial(listening, half), {"does not answer"}),
        (partial(refusing, "127.0.0.1"), {"cannot be reached: Connection refused"}),
        (partial(refusing, "::1"), {"cannot be reached: Connection refused"}),
        (dropping, {"cannot be reached: Operation timed out"}),
    ],
    ids=[
        "no certificate", "closed", "garbage", "silence", "half", "refused", "IPv6", "dropped"
    ],
)  # fmt: skip
def test_timeout_exits_with_0_and_logs_the_reason(
    linger: Path, server: Callable[[], AbstractContextManager[Listener]], reasons: set[str]
) -> None:
    """The timeout may pass during the last attempt, or before it begins. So there are some runs."""
    told = set[str]()
    for _ in range(3):
        with server() as listener:
            started = time.monotonic()
            line = logged_line(linger, listener, timeout="2s")
            assert time.monotonic() - started >= 1.9
        begin = f"timeout: the kubelet at {listener.host} "
        told.add(line.removeprefix(begin).removesuffix("; continuing without it"))
        if told & reasons:
            break
    assert told & reasons
    assert told <= reasons | {"does not answer", "cannot be reached: Operation timed out"}


@pytest.mark.parametrize("number", [HANDSHAKE_FAILURE, 0, 7, 112, 255])
def test_permanent_tls_alert_ends_the_wait(linger: Path, number: int) -> None:
    with listening(alert(number)) as server:
        assert logged_line(linger, server) == (
            f"not waiting: the kubelet at 127.0.0.1 refuses the handshake with TLS alert {number}"
        )
        assert server.connections == 1


def test_server_that_supports_none_of_the_offered_groups_ends_the_wait(
    linger: Path, tmp_path: Path
) -> None:
    """Otherwise it could send a HelloRetryRequest, a ServerHello that needs no certificate."""
    with openssl_server(tmp_path, "-tls1_3", "-groups", "P-384") as server:
        assert "refuses the handshake with TLS alert 40" in logged_line(linger, server)


def test_attempts_back_off(linger: Path) -> None:
    with listening(NO_CERTIFICATE_YET) as server:
        logged_line(linger, server, timeout="2s")
        # After 0, 100, 300, 700, 1500 and 1900 ms. On a slow machine there are fewer.
        assert 2 <= server.connections <= 6


# In all other cases, the pod continues, too.


@pytest.mark.parametrize("host", [None, "", "node.example", "10.0.0.1 ", "fe80::1%eth0", "1.2.3"])
def test_invalid_address_exits_with_0(linger: Path, host: str | None) -> None:
    done = run(linger, "wait-kubelet", env={"HOST_IP": host} if host is not None else {})
    assert (done.returncode, done.stdout) == (0, "")
    expected = f"linger: not waiting for the kubelet: HOST_IP is not an address: {host or ''}\n"
    assert done.stderr == expected


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
def test_wrong_usage_exits_with_2_and_prints_the_usage(linger: Path, arguments: list[str]) -> None:
    done = run(linger, "wait-kubelet", *arguments, env={"HOST_IP": "127.0.0.1"})
    assert (done.returncode, done.stdout) == (2, "")
    assert "linger wait-kubelet [--timeout D] [--port N]" in done.stderr


def test_help_shows_the_defaults_of_port_and_timeout(linger: Path) -> None:
    done = run(linger, "wait-kubelet", "--timeout=0", env={"HOST_IP": "127.0.0.1"})
    assert done.returncode == 0
    shown = run(linger, "--help").stdout
    assert "default 30s" in shown
    assert "default 10250" in shown


# wait-kubelet as PID 1 of containers with the network of this machine.


@pytest.mark.parametrize(
    "resources",
    [None, pytest.param(TIGHT, marks=with_limits)],
    ids=["no limits", "tight limits"],
)
def test_wait_works_for_any_user_on_a_read_only_root(
    machine: Machine, resources: Mapping[str, object] | None
) -> None:
    with listening(NO_CERTIFICATE_YET, handshake(server_context())) as server:
        code, out, err = machine.run(
            ["/linger", *wait_arguments(server)],
            uid=machine.unprivileged_uid,
            resources=resources,
            env={"HOST_IP": server.host},
        )
    assert (code, out, err) == (0, "", f"linger: the kubelet at 127.0.0.1 {READY}\n")


def test_wait_wrapped_by_linger_lives_for_the_minimum_lifetime(machine: Machine) -> None:
    with listening(handshake(server_context())) as server:
        started = time.monotonic()
        settled = ["/linger", "--min-lifetime", "1s", "--", "/linger", *wait_arguments(server)]
        code, _, err = machine.run(settled, env={"HOST_IP": server.host})
    assert time.monotonic() - started >= 1
    assert (code, err) == (0, f"linger: the kubelet at 127.0.0.1 {READY}\n")


def test_attempts_leave_no_open_file_descriptor(linger: Path) -> None:
    """The limit allows the three standard descriptors and one more."""
    script = f"ulimit -n 4; exec '{linger}' \"$@\""
    with listening(*[NO_CERTIFICATE_YET] * 3, handshake(server_context())) as server:
        limited = ["sh", "-c", script, "sh", *wait_arguments(server)]
        done = run(*limited, env={**os.environ, "HOST_IP": server.host})
    assert done.stderr == f"linger: the kubelet at 127.0.0.1 {READY}\n"
