"""The measured servers: podsettle at any commit, the echo, and agnhost, Kubernetes' test webhook.

All of them serve the same certificate over TLS, on the same core.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from bench.commands import BenchError
from tests.support.process import free_port
from tools import build

# The timeout of a server's start and of each request. A busy machine may need many seconds.
_TIMEOUT_SECONDS = 60.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Code:
    """The code of podsettle: a checkout of this repository, and a Python with its packages."""

    tree: Path
    python: str

    @property
    def command(self) -> tuple[str, ...]:
        """The begin of a podsettle command. -P leaves out the working directory."""
        return self.python, "-P", "-c", "from webhook.cli import main; main()"

    @property
    def has_web_port(self) -> bool:
        """Whether previews have a port of their own. Older commits answer everything on one."""
        return "--web-port" in (self.tree / "webhook/cli/serve.py").read_text(encoding="utf-8")

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which Python imports the code, also in preview workers."""
        return {"PYTHONPATH": str(self.tree)}


THIS_CODE = Code(Path(__file__).parents[1], sys.executable)


@dataclass(frozen=True, slots=True)
class Server:
    """A running server that answers reviews."""

    url: str
    """The URL of the webhook."""
    ca: Path
    """The CA certificate for the connection."""
    pid: int
    seconds_to_ready: float
    preview_url: str = ""

    def answer(self, reviews: Sequence[bytes]) -> list[Any]:
        """Send reviews one after another, and return the responses that the answers contain.

        Raises BenchError for an answer that is not that to the review, or denies the pod.
        """
        responses = []
        with _client(self.ca) as client:
            for review in reviews:
                answer = client.post(self.url, content=review, headers=_JSON)
                response = answer.json()["response"] if answer.status_code == 200 else {}
                if not response.get("allowed") or response["uid"].encode() not in review:
                    raise BenchError(f"{self.url} answers {answer}: {answer.text[:500]}")
                responses.append(response)
        return responses

    def preview(self, text: bytes) -> int:
        """Request a preview on a new connection, and return the status of the answer."""
        with _client(self.ca) as client:
            return client.post(self.preview_url, content=text).status_code

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the process and its descendants, in user and kernel mode."""
        ticks = 0
        for pid in _process_tree(self.pid):
            # The name in parentheses may contain any character, also spaces and parentheses.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
        return ticks / _TICKS

    def memory_mib(self) -> float:
        """Return the resident memory of the process and its descendants in MiB.

        Pages that several of them share count several times.
        """
        found = (Path(f"/proc/{pid}/status").read_text() for pid in _process_tree(self.pid))
        kib = re.findall(r"^VmRSS:\s+(\d+) kB", "".join(found), re.MULTILINE)
        return sum(map(int, kib)) / 1024


_JSON = {"Content-Type": "application/json"}


@contextmanager
def serve_podsettle(
    code: Code,
    certs: Path,
    core: int | None,
    *,
    manifests: Path | None = None,
    kubeconfig: Path | None = None,
    host: str = "127.0.0.1",
) -> Iterator[Server]:
    """Run podsettle with default settings while the block runs, on manifests or an API server."""
    port = web_port = free_port()
    options: dict[str, Path | str | int] = {"--certs-dir": certs, "--host": host, "--port": port}
    if code.has_web_port:
        options["--web-port"] = web_port = free_port()
    if manifests:
        options["--manifests"] = manifests
    command = [*code.command, "serve", *chain(*options.items())]
    environment = {"KUBECONFIG": str(kubeconfig), **code.environment}
    url = f"https://{host}:{port}"
    with _serving(command, f"{url}/mutate", f"{url}/readyz", certs, core, environment) as server:
        yield replace(server, preview_url=f"https://{host}:{web_port}/preview")


@contextmanager
def serve_echo(
    certs: Path, answer: Path, core: int | None, host: str = "127.0.0.1"
) -> Iterator[Server]:
    """Run the echo while the block runs. It sends the answer of a file to every request."""
    port = free_port()
    url = f"https://{host}:{port}/mutate"
    command = (sys.executable, "-m", "bench.echo", certs, host, port, answer)
    with _serving(command, url, url, certs, core, {}) as server:
        yield server


@contextmanager
def serve_agnhost(certs: Path, core: int) -> Iterator[Server]:
    """Run agnhost with one thread for Go code while the block runs."""
    port = free_port()
    command: list[str | Path | int] = [build.tool("agnhost"), "webhook", "--port", port]
    command += ["--tls-cert-file", certs / "tls.crt", "--tls-private-key-file", certs / "tls.key"]
    url = f"https://127.0.0.1:{port}"
    paths = f"{url}/mutating-pods", f"{url}/readyz"
    with _serving(command, *paths, certs, core, {"GOMAXPROCS": "1"}) as server:
        yield server


@contextmanager
def _serving(
    command: Sequence[str | Path | int],
    url: str,
    ready: str,
    certs: Path,
    core: int | None,
    environment: Mapping[str, str],
) -> Iterator[Server]:
    """Run a server while the block runs. Raises BenchError if it does not become ready."""
    log = certs / f"{urlsplit(url).port}.log"
    ca = certs / "ca.crt"
    start = time.perf_counter()
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **environment},
            # This runs in the child before exec, so all threads of the program inherit it.
            preexec_fn=None if core is None else lambda: os.sched_setaffinity(0, {core}),
        )
    try:
        with _client(ca) as client:
            while not _is_ready(client, ready):
                if process.poll() is not None or time.perf_counter() - start > _TIMEOUT_SECONDS:
                    raise BenchError(f"a server does not start:\n{log.read_text()[-2000:]}")
                time.sleep(0.005)
        yield Server(url, ca, process.pid, time.perf_counter() - start)
    finally:
        process.terminate()
        try:
            process.wait(_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is_ready(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(url).status_code == 200
    except httpx.TransportError:
        return False


def _client(ca: Path) -> httpx.Client:
    """Return a client that asks no proxy."""
    context = ssl.create_default_context(cafile=ca)
    return httpx.Client(verify=context, timeout=_TIMEOUT_SECONDS, trust_env=False)


def non_loopback_address() -> str:
    """Return an address of this machine other than the loopback address.

    The API server uses HTTP/1.1 for webhooks, except on the loopback address. There it also offers
    HTTP/2 (`apiserver/pkg/util/webhook/client.go`). Raises BenchError if there is no other address.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # For UDP, connect() sends nothing. It only selects the local address.
            probe.connect(("198.51.100.1", 9))
            address: str = probe.getsockname()[0]
        except OSError:
            address = "127.0.0.1"
    if address.startswith("127."):
        raise BenchError("this machine has only the loopback address")
    return address


def _process_tree(pid: int) -> Iterator[int]:
    """Yield the IDs of a process and of all its descendants."""
    yield pid
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            yield from _process_tree(int(child))
