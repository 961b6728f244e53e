"""Server processes of `podsettle serve`, and runs of podsettle's commands."""

from __future__ import annotations

import os
import random
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.support.waiting import TIMEOUT_SECONDS, await_that

PODSETTLE = str(Path(sys.executable).with_name("podsettle"))


def podsettle(
    *arguments: str | Path, stdin: str | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [PODSETTLE, *map(str, arguments)],
        input=stdin,
        env=env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


@dataclass
class RunningServer:
    """A server process that answers."""

    process: subprocess.Popen[str]
    url: str
    ca: Path
    log: Path

    @property
    def port(self) -> int:
        """The port of the loopback address that the server listens on."""
        return int(self.url.rpartition(":")[2])

    def client(self) -> httpx.Client:
        """A client that trusts the server's CA and no other."""
        trust = ssl.create_default_context(cafile=self.ca)
        return httpx.Client(base_url=self.url, verify=trust, timeout=TIMEOUT_SECONDS)

    def await_previews(self) -> None:
        """Wait until the server makes previews.

        A server refuses a preview if its worker, which has a low priority, does not start in time.
        """
        pod = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c}]}}"
        with self.client() as client:
            await_that(
                lambda: client.post("/preview", content=pod).status_code == 200,
                "previews are made",
            )


# Below those that Linux gives away by default (`ip_local_port_range`), to whoever connects to
# anything; and each of the two workers has its own.
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_ports = iter(random.sample(range(20_000 + _worker % 2, 32_000, 2), 6_000))


def free_port() -> int:
    """Return an unused port of the loopback address, another one each time."""
    for port in _ports:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("all ports are taken")


@contextmanager
def start_server(
    manifests: Path | None,
    certs: Path,
    *arguments: str,
    kubeconfig: Path | None = None,
    port: int | None = None,
) -> Iterator[RunningServer]:
    """A server on manifests or a cluster, with development certificates of its own."""
    made = podsettle("certs", "--certs-dir", certs)
    assert made.returncode == 0, made.stderr
    port = port or free_port()
    command = [PODSETTLE, "serve", "--certs-dir", str(certs), "--port", str(port), *arguments]
    if manifests is not None:
        command += ["--manifests", str(manifests)]
    with run_server(command, certs, port, {"KUBECONFIG": str(kubeconfig)}) as server:
        yield server


@contextmanager
def run_server(
    command: list[str], certs: Path, port: int, environment: dict[str, str] | None = None
) -> Iterator[RunningServer]:
    """Run a command that serves on a port, with the certificates in a directory."""
    log = certs / "serve.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            text=True,
            env={**os.environ, **(environment or {})},
        )
    server = RunningServer(process, f"https://127.0.0.1:{port}", certs / "ca.crt", log)
    try:
        _await_ready(server)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(TIMEOUT_SECONDS)
            raise


def _await_ready(server: RunningServer) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    with server.client() as client:
        while True:
            try:
                if client.get("/readyz").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            if server.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the server did not start:\n{server.log.read_text()}")
            time.sleep(0.02)


def process_status(pid: int, field: str) -> str:
    """A field of a process' /proc/PID/status. Raises OSError where there is no such process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return line.partition(":")[2].strip()
    raise KeyError(field)
