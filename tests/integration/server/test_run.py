"""A server process: TLS, keep-alive, changing manifests and certificates, signals."""

from __future__ import annotations

import json
import resource
import signal
import socket
import ssl
from pathlib import Path

import httpx
import pytest

from tests.support.patches import without_notes
from tests.support.paths import EXAMPLES
from tests.support.process import RunningServer, podsettle, podsettle_process, start_server
from tests.support.reviews import PODS, UID, load_pod, patch_of, review
from tests.support.waiting import TIMEOUT_SECONDS, await_that
from webhook.server.limits import DEFAULT_LIMITS

TEKTON = load_pod(next(path for path in PODS if path.stem == "tekton-taskrun-sidecar"))

POLICY = """\
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata: {name: all}
spec:
  namespaceSelector: {}
  remedies: {postInitSleep: {}}
"""


def test_server_patches_over_tls_and_keeps_the_connection_open(server: RunningServer) -> None:
    with server.client() as client:
        for _ in range(3):
            answer = client.post("/mutate", json=review(TEKTON))
            assert patch_of(answer.json())
            assert answer.http_version == "HTTP/1.1"
        # One answer in a thousand closes its connection.
        answers = [client.post("/mutate", json=review(TEKTON)) for _ in range(5)]
        assert any("connection" not in answer.headers for answer in answers)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_tls_below_1_2_is_refused(server: RunningServer) -> None:
    context = ssl.create_default_context(cafile=server.ca)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    host, port = server.url.removeprefix("https://").split(":")
    with (
        socket.create_connection((host, int(port))) as plain,
        # The refusal is an alert, or a closed connection as with uvloop.
        pytest.raises(ssl.SSLError, match=r"PROTOCOL_VERSION|EOF occurred|closed \(EOF\)"),
        context.wrap_socket(plain, server_hostname=host),
    ):
        pass


def test_paths_of_the_web_port_are_refused_on_the_port_of_reviews(server: RunningServer) -> None:
    """A client that still uses the other port is told where the path is."""
    trust = ssl.create_default_context(cafile=server.ca)
    paths = ("/", "/metrics", "/version", "/openapi.json", "/preview", "/view")
    with httpx.Client(verify=trust) as client:
        for path in paths:
            answer = client.get(server.url + path)
            assert answer.status_code == 404
            assert "on --web-port" in answer.text
            assert client.get(server.web_url + path).status_code in (200, 405)
        for path in ("/livez", "/readyz", "/readyz?verbose"):
            assert client.get(server.url + path).text == "ok"


def test_manifest_that_changes_becomes_invalid_and_is_corrected(tmp_path: Path) -> None:
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    policy = manifests / "policy.yaml"

    def write(text: str) -> None:
        """Write the policy so that the server sees no empty file, which would be valid."""
        new = tmp_path / "policy.new"
        new.write_text(text)
        new.replace(policy)

    with start_server(manifests, tmp_path / "certs") as server, server.client() as client:

        def patched() -> bool:
            patch = patch_of(client.post("/mutate", json=review(TEKTON)).json())
            return bool(without_notes(patch))

        assert not patched()
        write(POLICY)
        await_that(patched, "the new policy is in force")
        write(POLICY.replace("postInitSleep", "postInitSlep"))
        await_that(
            lambda: "did you mean postInitSleep?" in client.get("/readyz?verbose").text,
            "the invalid policy is reported",
        )
        assert patched()
        await_that(lambda: "did you mean postInitSleep?" in server.log.read_text(), "it is logged")
        write(POLICY.replace("{postInitSleep: {}}", "{runtimeClass: {name: none}}"))
        await_that(lambda: not patched(), "the corrected policy is in force")
        checks = client.get("/readyz?verbose").json()["checks"]
        for name in ("manifests", "certificate"):
            assert {"name": name, "ready": True, "note": ""} in checks
        policy.unlink()
        await_that(
            lambda: "podsettle_policies 0.0" in client.get("/metrics").text, "the policy is gone"
        )


def test_new_certificates_are_served_without_a_restart(tmp_path: Path) -> None:
    with start_server(EXAMPLES, tmp_path) as server:
        podsettle("certs", "--certs-dir", tmp_path, "--name", "podsettle.example")

        def trusted() -> bool:
            try:
                with server.client() as client:
                    paths = (f"{server.url}/livez", f"{server.web_url}/version")
                    return all(client.get(path).status_code == 200 for path in paths)
            except httpx.TransportError:
                return False

        await_that(trusted, "the new certificate, of a new CA, is served")
        (tmp_path / "tls.key").write_text("no key")
        refusal = "tls.key: not a PEM private key"
        await_that(lambda: refusal in server.log.read_text(), "it is refused")
        assert trusted()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_signal_drains_the_server_and_it_exits_0(tmp_path: Path, how: signal.Signals) -> None:
    slow = ("--drain-quiet", "15s", "--drain-limit", "15s")
    with start_server(EXAMPLES, tmp_path, *slow) as server, server.client() as client:
        server.process.send_signal(how)
        await_that(lambda: client.get("/readyz").status_code == 503, "the server is not ready")
        assert client.get("/readyz").text == "not ready"
        checks = client.get("/readyz?verbose").json()["checks"]
        assert [check["name"] for check in checks if not check["ready"]] == ["shutdown"]
        assert patch_of(client.post("/mutate", json=review(TEKTON)).json())
        assert server.process.wait(TIMEOUT_SECONDS) == 0
        assert "shutting down: exit after" in server.log.read_text()


def test_second_signal_ends_the_server_at_once(tmp_path: Path) -> None:
    slow = ("--drain-quiet", "1h", "--drain-limit", "1h")
    with start_server(EXAMPLES, tmp_path, *slow) as server, server.client() as client:
        context = ssl.create_default_context(cafile=server.ca)
        address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        with (
            socket.create_connection(address) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as stuck,
        ):
            head = "POST /mutate?timeout=30s HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n"
            stuck.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode())
            in_flight = "podsettle_requests_in_flight 1.0"
            await_that(lambda: in_flight in client.get("/metrics").text, "a review is in flight")
            server.process.terminate()
            await_that(lambda: client.get("/readyz").status_code == 503, "the server drains")
            server.process.terminate()
            assert server.process.wait(TIMEOUT_SECONDS) == 0
            log = server.log.read_text()
            # It has not waited for requests in flight.
            assert "timeout graceful shutdown exceeded" not in log
            assert "ERROR" not in log


def test_server_raises_its_limit_on_open_files_above_that_on_connections(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        with start_server(EXAMPLES, tmp_path) as server:
            raised, _ = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    limits = DEFAULT_LIMITS
    connections = limits.max_connections + limits.max_web_connections
    assert raised > connections + limits.max_handshakes + limits.max_web_handshakes


def test_json_log_has_an_object_on_each_line(tmp_path: Path) -> None:
    arguments = ("--log-format", "json", "--host", "::")
    with start_server(EXAMPLES, tmp_path, *arguments) as server, server.client() as client:
        assert patch_of(client.post("/mutate", json=review(TEKTON)).json())
        await_that(lambda: UID in server.log.read_text(), "the review is logged")
        server.process.terminate()
        assert server.process.wait(TIMEOUT_SECONDS) == 0
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    messages = [line["message"] for line in lines]
    (reviewed,) = [line for line in lines if "uid" in line]
    assert (reviewed["uid"], reviewed["pod"]) == (UID, TEKTON["metadata"]["name"])
    assert "/postInitSleep[prepare]=Applied" in reviewed["applied"]
    assert any(message.startswith("podsettle serves https://") for message in messages)
    assert any("/view and /metrics without a token" in message for message in messages)
    assert any(message.startswith("shutting down: exit after") for message in messages)


def test_missing_certificates_are_an_error_with_the_command_to_create_them(tmp_path: Path) -> None:
    done = podsettle_process("serve", "--manifests", tmp_path, "--certs-dir", tmp_path / "none")
    assert done.returncode == 2
    assert f"podsettle certs --certs-dir {tmp_path / 'none'}" in done.stderr


@pytest.mark.parametrize(
    ("flag", "hint"),
    [
        ("--port", "--port 10443, or make run PORT=10443"),
        ("--web-port", "--web-port 11443, or make run WEB_PORT=11443"),
    ],
)
def test_port_in_use_is_an_error(tmp_path: Path, flag: str, hint: str) -> None:
    podsettle("certs", "--certs-dir", tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ports = ("--port", "0", "--web-port", "0", flag, str(port))
        done = podsettle_process("serve", "--manifests", tmp_path, "--certs-dir", tmp_path, *ports)
    assert done.returncode == 2
    assert (
        done.stderr
        == f"podsettle: cannot listen on 127.0.0.1 port {port}: Address already in use; "
        f"choose another port: {hint}\n"
    )
    assert done.stdout == ""
