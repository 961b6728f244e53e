"""Server processes of `podsettle serve`, and runs of podsettle's commands."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import trustme
from click.testing import CliRunner

from tests.support.waiting import TIMEOUT_SECONDS, await_that
from webhook.cli import main

PODSETTLE = str(Path(sys.executable).with_name("podsettle"))


def podsettle(
    *arguments: str | Path, stdin: str | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, and return what a process of its own would.

    `env` is the whole environment of the command. A command that starts an event loop cannot run in
    a test that is a coroutine. There, and where signals, log handlers or the start itself count,
    call `podsettle_process`.
    """
    words = [str(argument) for argument in arguments]
    changes = {**dict.fromkeys(os.environ), **env} if env is not None else None
    result = CliRunner().invoke(main, words, input=stdin, env=changes, prog_name="podsettle")
    return subprocess.CompletedProcess(words, result.exit_code, result.stdout, result.stderr)


def run(*command: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with options of `subprocess.run`, and return its output as text."""
    defaults = {"capture_output": True, "text": True, "timeout": TIMEOUT_SECONDS, "check": False}
    if "input" not in options:
        defaults["stdin"] = subprocess.DEVNULL
    done: subprocess.CompletedProcess[str] = subprocess.run(
        [str(each) for each in command], **(defaults | options)
    )
    return done


def podsettle_process(
    *arguments: str | Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command as a process to its end."""
    return run(PODSETTLE, *arguments, env=env)


REVIEW_PATHS = ("/mutate", "/mutate/", "/livez", "/readyz")
"""The paths of the port for reviews."""


@dataclass
class RunningServer:
    """A server process that answers."""

    process: subprocess.Popen[str]
    port: int
    """The port of the loopback address for reviews and probes."""
    web_port: int
    """The port of the loopback address for the application."""
    ca: Path
    log: Path

    @property
    def url(self) -> str:
        """The URL of the port for reviews."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def web_url(self) -> str:
        """The URL of the web port."""
        return f"https://127.0.0.1:{self.web_port}"

    def client(self) -> httpx.Client:
        """A client that trusts the server's CA and no other. Each path goes to its port."""
        trust = ssl.create_default_context(cafile=self.ca)

        def choose_port(request: httpx.Request) -> None:
            if request.url.path not in REVIEW_PATHS or request.url.query == b"verbose":
                request.url = request.url.copy_with(port=self.web_port)

        # uvicorn closes an idle connection after 5 s, httpx's own default: a request at that moment
        # would meet a closed connection.
        return httpx.Client(
            base_url=self.url,
            verify=trust,
            timeout=TIMEOUT_SECONDS,
            event_hooks={"request": [choose_port]},
            limits=httpx.Limits(keepalive_expiry=1),
        )

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


# Bound and not listening: Linux gives these ports to no other process that asks for any port, and a
# server that sets SO_REUSEADDR, as asyncio and Go do, can bind one by its number.
_kept: list[socket.socket] = []


def free_port() -> int:
    """Return a port of the loopback address that is kept free until this process ends."""
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    _kept.append(kept)
    port: int = kept.getsockname()[1]
    return port


@cache
def _authority() -> trustme.CA:
    """Return the CA of all servers that this process starts. A key takes longer than a copy."""
    return trustme.CA()


@cache
def _certificate() -> trustme.LeafCert:
    return _authority().issue_cert("localhost", "127.0.0.1", "::1")


def write_certificates(directory: Path) -> None:
    """Write what `podsettle certs` writes, with a CA that all servers of this process share."""
    directory.mkdir(parents=True, exist_ok=True)
    _authority().cert_pem.write_to_path(directory / "ca.crt")
    certificate, key = directory / "tls.crt", directory / "tls.key"
    _certificate().cert_chain_pems[0].write_to_path(certificate)
    _certificate().private_key_pem.write_to_path(key)
    key.chmod(0o600)


@contextmanager
def start_server(
    manifests: Path | None,
    certs: Path,
    *arguments: str,
    kubeconfig: Path | None = None,
    port: int | None = None,
    prefix: Sequence[str] = (),
) -> Iterator[RunningServer]:
    """Start a server on manifests or a cluster. `prefix` stands in front of its command."""
    write_certificates(certs)
    port, web_port = port or free_port(), free_port()
    ports = ["--port", str(port), "--web-port", str(web_port)]
    command = [*prefix, PODSETTLE, "serve", "--certs-dir", str(certs), *ports, *arguments]
    if manifests is not None:
        command += ["--manifests", str(manifests)]
    with run_server(command, certs, port, web_port, {"KUBECONFIG": str(kubeconfig)}) as server:
        yield server


@contextmanager
def run_server(
    command: list[str],
    certs: Path,
    port: int,
    web_port: int,
    environment: dict[str, str] | None = None,
) -> Iterator[RunningServer]:
    """Run a command that serves on two ports, with the certificates in a directory."""
    log = certs / "serve.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            text=True,
            env={**os.environ, **(environment or {})},
        )
    server = RunningServer(process, port, web_port, certs / "ca.crt", log)
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


def is_running(pid: int) -> bool:
    """Whether a process runs. A zombie does not."""
    try:
        return process_status(pid, "State")[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
