"""Tests of `podsettle serve`: conflicting options, the start message, SIGTERM as process 1."""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.support.kubeconfigs import write_kubeconfig
from tests.support.process import PODSETTLE, free_port, podsettle, podsettle_process
from tests.support.waiting import TIMEOUT_SECONDS, await_that

SERVE = ("serve", "--port", "0", "--web-port", "0")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--tls", "self-managed", "--manifests", "."), "--tls self-managed needs a cluster"),
        (
            ("--webhook-configuration", "podsettle", "--manifests", "."),
            "--webhook-configuration needs a cluster",
        ),
        (("--tls", "self-managed"), "--tls self-managed needs --own-namespace NAME"),
        (("--linger-version", "newest"), "'newest' is not a version such as 0.2.0"),
        (("--docs-url", "docs/why.md"), "'docs/why.md' is not a URL: give http(s)://HOST/PAGE"),
        (("--docs-url", "https://docs.example/a b"), "is not a URL"),
        (("--docs-url", "https://docs.example/a#b"), "is not a URL"),
        (("--docs-url", "https://docs.example/\x1b"), "is not a URL"),
        (("--docs-url", "https://docs.example/" + "é" * 118), "longer than 256 bytes"),
        (("--webhook-configuration", "podsettle"), "needs --own-namespace NAME"),
        (
            ("--manifests", ".", "--drain-quiet", "60s", "--drain-limit", "10s"),
            "--drain-quiet is longer than --drain-limit",
        ),
        (
            ("--tls", "self-managed", "--own-namespace", "n", "--ca-life", "1h"),
            "--leaf-life and --ca-life: ",
        ),
        (("--port", "abc"), "'abc' is not a valid port number from 0 to 65535."),
        (
            ("--port", "8001", "--web-port", "8001"),
            "podsettle: --port and --web-port are both 8001, and have to differ\n",
        ),
        (("--host", ""), "podsettle: --host is empty: give an address, such as 127.0.0.1"),
        (("--drain-quiet", "ten"), "'ten' is not a duration: write it as"),
        (
            ("--manifests", ".", "--client-ca", "/none/such"),
            "podsettle: --client-ca: /none/such: No such file",
        ),
        (("--manifests", "/none/such"), "podsettle: --manifests: /none/such: No such file"),
    ],
)
def test_conflicting_or_invalid_options_exit_with_2_and_a_reason(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    assert podsettle("certs", "--certs-dir", tmp_path).returncode == 0
    found = podsettle_process(
        *SERVE, "--certs-dir", tmp_path, *arguments, env={"KUBECONFIG": "/none"}
    )
    assert found.returncode == 2
    assert message in found.stderr
    assert "Traceback" not in found.stderr


def test_start_message_counts_policies_with_problems(tmp_path: Path) -> None:
    assert podsettle("certs", "--certs-dir", tmp_path / "certs").returncode == 0
    head = "apiVersion: podsettle.dev/v1alpha1\nkind: SettlePolicy\nmetadata: {name: a}\n"
    (tmp_path / "good.yaml").write_text(head + "spec: {remedies: {kubeletGate: {}}}\n")
    (tmp_path / "bad.yaml").write_text(head + "spec: {remedies: {kubeletGat: {}}}\n")
    log = tmp_path / "log"
    command = [PODSETTLE, *SERVE, "--certs-dir", str(tmp_path / "certs"), "--host", "::"]
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "--manifests", str(tmp_path)], stdout=output, stderr=output
        )
    try:
        await_that(lambda: "podsettle serves" in log.read_text(), "it serves")
    finally:
        process.terminate()
        process.wait(TIMEOUT_SECONDS)
    assert " on 1 policy (objects with the 1 problem above are left out) in " in log.read_text()
    (port,) = re.findall(r"page +https://localhost:(\d+)/", log.read_text())
    assert f"any client of https://[::]:{port} can use /preview," in log.read_text()


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (("--host", "127.0.0.1"), "https://127.0.0.1:PORT"),
        (("--host", "0.0.0.0"), "https://0.0.0.0:PORT (all addresses)"),
        (
            ("--host", "0.0.0.0", "--tls", "self-managed", "--own-namespace", "ns"),
            "https://0.0.0.0:PORT (all addresses) as https://podsettle.ns.svc",
        ),
    ],
)
def test_start_message_names_the_listening_address_and_the_cluster(
    arguments: tuple[str, ...], where: str, tmp_path: Path
) -> None:
    assert podsettle("certs", "--certs-dir", tmp_path).returncode == 0
    kubeconfig = write_kubeconfig(tmp_path, "http://127.0.0.1:1")
    ports = {"PORT": str(free_port()), "WEB": str(free_port())}
    command = [PODSETTLE, "serve", "--certs-dir", str(tmp_path), *arguments]
    command += ["--port", ports["PORT"], "--web-port", ports["WEB"]]
    process = subprocess.Popen(
        command,
        env={"KUBECONFIG": str(kubeconfig)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_SECONDS)
    assert line == (
        f"podsettle serves {where.replace('PORT', ports['PORT'])} for the cluster at "
        f"http://127.0.0.1:1; page, previews and metrics on port {ports['WEB']}"
    )


# As the first process of a container, which no signal ends by default


PID_NAMESPACE = ("--pid", "--fork", "--mount-proc", "--kill-child")


first_process = pytest.mark.needs("unshare")


@contextmanager
def as_first_process(
    *arguments: str | Path | int, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """Run podsettle as process 1 of a PID namespace, and yield the process of `unshare`."""
    process = subprocess.Popen(
        ["unshare", *PID_NAMESPACE, PODSETTLE, *map(str, arguments)],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT_SECONDS)


def terminate(unshare: subprocess.Popen[str]) -> None:
    """Send SIGTERM to process 1 of the PID namespace."""
    (child,) = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGTERM)


@first_process
@pytest.mark.parametrize("held_up_by", ["click", "fastapi"])
def test_sigterm_ends_process_1_during_its_imports(tmp_path: Path, held_up_by: str) -> None:
    assert podsettle("certs", "--certs-dir", tmp_path).returncode == 0
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    # Not one long read: Python sees a signal only between two steps, and the signal may come when
    # the last step before the read is over.
    (tmp_path / f"{held_up_by}.py").write_text(
        f"import select\ngate = open({str(gate)!r})\n"
        "while not select.select([gate], [], [], 0.1)[0]: pass\n"
    )
    serve = (*SERVE, "--certs-dir", tmp_path, "--manifests", tmp_path)
    ends: list[int] = []

    def is_held_up() -> bool:
        with suppress(OSError):  # The reader has not started yet.
            ends.append(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
        return bool(ends)

    with as_first_process(*serve, PYTHONPATH=str(tmp_path)) as unshare:
        await_that(is_held_up, "the import has begun")
        terminate(unshare)
        assert unshare.wait(TIMEOUT_SECONDS) == 128 + signal.SIGTERM
    os.close(ends[0])


@first_process
def test_sigterm_drains_process_1_once_it_serves(tmp_path: Path) -> None:
    assert podsettle("certs", "--certs-dir", tmp_path).returncode == 0
    port = free_port()
    serve = (*SERVE, "--port", port, "--certs-dir", tmp_path, "--manifests", tmp_path)
    context = ssl.create_default_context(cafile=tmp_path / "ca.crt")

    def answers() -> bool:
        try:
            return httpx.get(f"https://127.0.0.1:{port}/livez", verify=context).status_code == 200
        except httpx.TransportError:
            return False

    with as_first_process(*serve) as unshare:
        await_that(answers, "it serves")
        terminate(unshare)
        assert unshare.wait(TIMEOUT_SECONDS) == 0
