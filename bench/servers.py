"""The measured servers: podsettle, the echo, and agnhost, the Go webhook of Kubernetes' tests.

All of them serve the same certificate over TLS, on the loopback address, on the same core.
"""

from __future__ import annotations

import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

from bench.errors import BenchError
from bench.process import Process, running_process
from tests.support.paths import ROOT
from tests.support.process import free_port, podsettle
from tools import build

# The timeout of a server's start and of each request. A busy machine may need many seconds.
_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Code:
    """The code of a server: a checkout of this repository, and a Python with its packages."""

    tree: Path
    python: str

    @property
    def python_command(self) -> tuple[str, str]:
        """The begin of a command that imports the code. -P leaves out the working directory."""
        return self.python, "-P"

    @property
    def podsettle(self) -> tuple[str, ...]:
        """The begin of a command of podsettle."""
        return *self.python_command, "-c", "from webhook.cli import main; main()"

    @property
    def has_web_port(self) -> bool:
        """Whether previews have a port of their own. Older commits answer everything on one."""
        return (self.tree / "webhook/server/connections/web.py").exists()

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which Python imports the code, also in preview workers."""
        return {"PYTHONPATH": str(self.tree)}


THIS_CODE = Code(ROOT, sys.executable)


@dataclass(frozen=True, slots=True)
class Server:
    """A running server that answers reviews."""

    name: str
    # The URL of the webhook.
    url: str
    # The CA certificate for the connection.
    ca: Path
    process: Process
    # The URL of podsettle's web port. An older commit has none, and answers previews at `url`.
    web_url: str = ""

    def connect(self) -> HTTPSConnection:
        """Open a new connection to the server."""
        return open_connection(self.url, self.ca)

    def preview(self, text: str | bytes) -> tuple[int, bytes]:
        """Request a preview on a new connection. Return the status and the body of the answer."""
        client = open_connection(self.web_url or self.url, self.ca)
        try:
            client.request("POST", "/preview", text)
            response = client.getresponse()
            return response.status, response.read()
        finally:
            client.close()

    def answer(self, review: bytes, client: HTTPSConnection) -> bytes:
        """Send one review and return the answer. Raises BenchError if its status is not 200."""
        path = urlsplit(self.url).path
        client.request("POST", path, review, {"Content-Type": "application/json"})
        response = client.getresponse()
        body = response.read()
        if response.status != 200:
            raise BenchError(f"{self.name} answers with status {response.status}: {body[:500]!r}")
        return body


def certificates(directory: Path, *names: str) -> Path:
    """Create a CA, a certificate (P-256) and its key in `directory`, and return it.

    The certificate is valid for the loopback address and for `names`.
    """
    name_options = [argument for name in names for argument in ("--name", name)]
    process = podsettle("certs", "--certs-dir", directory, *name_options)
    if process.returncode:
        raise BenchError(process.stderr)
    return directory


@contextmanager
def serve_podsettle(
    certs: Path,
    log: Path,
    *,
    manifests: Path | None = None,
    kubeconfig: Path | None = None,
    core: int | None = None,
    host: str = "127.0.0.1",
    name: str = "podsettle",
    code: Code = THIS_CODE,
) -> Iterator[Server]:
    """Run podsettle as in an installation, with default settings, while the block runs."""
    port, web_port = free_port(), free_port()
    command: list[str | Path] = [*code.podsettle, "serve", "--certs-dir", certs]
    command += ["--host", host, "--port", str(port)]
    if code.has_web_port:
        command += ["--web-port", str(web_port)]
    if manifests:
        command += ["--manifests", manifests]
    env = {"KUBECONFIG": str(kubeconfig), **code.environment}
    url = f"https://{host}:{port}"
    with _running_server(
        name, command, f"{url}/mutate", f"{url}/readyz", certs, log, core, env
    ) as server:
        yield replace(server, web_url=f"https://{host}:{web_port}" if code.has_web_port else "")


@contextmanager
def serve_echo(certs: Path, answer: bytes, log: Path, core: int) -> Iterator[Server]:
    """Run the echo while the block runs. It sends `answer` to every request."""
    port = free_port()
    answer_file = log.with_suffix(".answer")
    answer_file.write_bytes(answer)
    command: list[str | Path] = [sys.executable, "-m", "bench.echo", certs, str(port), answer_file]
    url = f"https://127.0.0.1:{port}/mutate"
    with _running_server("echo", command, url, url, certs, log, core, {}) as server:
        yield server


@contextmanager
def serve_agnhost(certs: Path, log: Path, core: int) -> Iterator[Server]:
    """Run agnhost with one thread for Go code while the block runs."""
    port = free_port()
    command: list[str | Path] = [build.agnhost(_print_progress), "webhook", "--port", str(port)]
    command += ["--tls-cert-file", certs / "tls.crt", "--tls-private-key-file", certs / "tls.key"]
    url = f"https://127.0.0.1:{port}"
    paths = f"{url}/mutating-pods", f"{url}/readyz"
    with _running_server(
        "agnhost", command, *paths, certs, log, core, {"GOMAXPROCS": "1"}
    ) as server:
        yield server


def open_connection(url: str, ca: Path) -> HTTPSConnection:
    """Open an HTTP/1.1 connection that trusts only the given CA."""
    parts = urlsplit(url)
    context = ssl.create_default_context(cafile=ca)
    return HTTPSConnection(
        parts.hostname or "", parts.port, timeout=_TIMEOUT_SECONDS, context=context
    )


def check_answers(server: Server, reviews: list[bytes], is_right: Callable[[bytes], bool]) -> None:
    """Send each review once, and raise BenchError if `is_right` is false for an answer.

    The load generators check only the status of answers.
    """
    client = server.connect()
    try:
        for review in reviews:
            answer = server.answer(review, client)
            if not is_right(answer):
                raise BenchError(f"{server.name} sends a wrong answer: {answer[:500]!r}")
    finally:
        client.close()


def non_loopback_address() -> str:
    """Return an address of this machine other than the loopback address.

    The API server uses HTTP/1.1 for webhooks, except on the loopback address. There it also offers
    HTTP/2 (`apiserver/pkg/util/webhook/client.go`). Raises BenchError if there is no other address.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # For UDP, connect() sends nothing. It only selects the local address.
            probe.connect(("198.51.100.1", 9))
        except OSError:
            raise BenchError("this machine has only the loopback address") from None
        address: str = probe.getsockname()[0]
    if address.startswith("127."):
        raise BenchError("this machine has only the loopback address")
    return address


@contextmanager
def _running_server(
    name: str,
    command: list[str | Path],
    url: str,
    ready: str,
    certs: Path,
    log: Path,
    core: int | None,
    env: Mapping[str, str],
) -> Iterator[Server]:
    with running_process(command, log, core=core, env=env) as process:
        wait_until_ready(process, ready, certs / "ca.crt")
        yield Server(name, url, certs / "ca.crt", process)


def wait_until_ready(process: Process, url: str, ca: Path, pause: float = 0.005) -> None:
    """Request `url` until the status is 200. Raises BenchError if the process exits before."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while not _is_ready(url, ca):
        if not process.running or time.monotonic() > deadline:
            raise BenchError(f"a server does not start; its log ends with:\n{process.log_tail()}")
        time.sleep(pause)


def _is_ready(url: str, ca: Path) -> bool:
    client = open_connection(url, ca)
    try:
        client.request("GET", urlsplit(url).path)
        return client.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        client.close()


def _print_progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
