"""kubectl and podsettle with the same kubeconfig and environment, and what reaches the servers."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import trustme
import yaml

from tests.support.recording_server import (
    Recorder,
    RecordingProxy,
    Seen,
    recording_context,
    serving,
)
from tools.build import tool
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, NoClusterError, Unreachable
from webhook.kubeconfig.access import Impersonation

TOKEN_PATH = "/api/v1/namespaces/{}/serviceaccounts/default/token"

_PLUGIN = """#!/bin/sh
echo $KUBERNETES_EXEC_INFO >> "{directory}/asked"
printf '%s\\n' "$0 $*" "${{PLUGIN_VARIABLE-unset}}" >> "{directory}/called"
{script}
"""


class Outcome(NamedTuple):
    """What a client did."""

    refused: bool
    """Whether it sent nothing and failed."""
    seen: tuple[Seen, ...]
    """The requests, each once: kubectl repeats those that fail."""
    proxied: tuple[tuple[str, str], ...]
    """What the proxies were asked."""
    plugin: tuple[Any, ...]
    """What the credential plugin was told."""
    message: str = ""
    """The client's error. It is not compared."""

    @property
    def compared(self) -> tuple[Any, ...]:
        """What has to be the same for both clients."""
        return self[:4]


@dataclass
class Case:
    """Kubeconfig files, an environment and flags."""

    files: Sequence[Any]
    """Documents, or texts."""
    env: Mapping[str, str] = field(default_factory=dict)
    context: str | None = None
    user: str | None = None
    groups: tuple[str, ...] = ()
    default: bool = False
    """Whether the last file is that of the default path, below the working directory."""


class World:
    """Two API servers with TLS, one without, two proxies, and the files that kubeconfigs name."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.seen: list[Seen] = []
        authority, others = trustme.CA(), trustme.CA()
        names = ("127.0.0.1", "localhost", "a.example", "api.b.example", "::1")
        served = authority.issue_cert(*names)
        self.ca, self.other_ca = directory / "ca.crt", directory / "other-ca.crt"
        self.ca_pem = authority.cert_pem.bytes()
        authority.cert_pem.write_to_path(self.ca)
        others.cert_pem.write_to_path(self.other_ca)
        chain, key = directory / "server.crt", directory / "server.key"
        served.private_key_pem.write_to_path(key)
        chain.write_bytes(b"".join(each.bytes() for each in served.cert_chain_pems))
        self.client = authority.issue_cert("ignored", common_name="alice")
        self.client_pem = self.client.cert_chain_pems[0].bytes().decode()
        self.key_pem = self.client.private_key_pem.bytes().decode()
        self.certificate, self.key = encoded(self.client_pem), encoded(self.key_pem)
        self.second = authority.issue_cert("ignored", common_name="bob")
        for name, issued in (("alice", self.client), ("bob", self.second)):
            (directory / f"{name}.crt").write_bytes(issued.cert_chain_pems[0].bytes())
            (directory / f"{name}.key").write_bytes(issued.private_key_pem.bytes())
        self.a = Recorder("a", self.seen, recording_context(chain, key, self.ca))
        self.b = Recorder("b", self.seen, recording_context(chain, key, self.ca))
        self.plain = Recorder("plain", self.seen)
        child = authority.create_child_ca()
        (directory / "intermediate.crt").write_bytes(child.cert_pem.bytes())
        issued = child.issue_cert(*names)
        issued.private_key_and_cert_chain_pem.write_to_path(directory / "intermediate.pem")
        file = directory / "intermediate.pem"
        context = recording_context(file, file, self.ca)
        self.intermediate = Recorder("intermediate", self.seen, context)
        self.proxy, self.second_proxy = RecordingProxy(), RecordingProxy()
        proxy = directory / "proxy.pem"
        issued = authority.issue_cert("127.0.0.1", "api.b.example")
        issued.private_key_and_cert_chain_pem.write_to_path(proxy)
        self.tls_proxy = RecordingProxy(recording_context(proxy, proxy, self.ca))
        self._proxies = (self.proxy, self.second_proxy, self.tls_proxy)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the servers."""
        servers = (self.a, self.b, self.plain, self.intermediate)
        with serving(*servers, *self._proxies):
            yield

    def cluster(self, recorder: Recorder | None = None, /, **fields: Any) -> dict[str, Any]:
        """Return a cluster that trusts the CA of the servers."""
        url = f"https://127.0.0.1:{(recorder or self.a).port}"
        return {"server": url, "certificate-authority": "ca.crt", **fields}

    def plugin(self, script: str, name: str = "plugin", **fields: Any) -> dict[str, Any]:
        """Return a user with a credential plugin that runs a shell script."""
        path = self.directory / name
        path.write_text(_PLUGIN.format(directory=self.directory, script=script))
        path.chmod(0o755)
        version = fields.pop("version", "client.authentication.k8s.io/v1")
        given = {"apiVersion": version, "command": str(path), "interactiveMode": "Never", **fields}
        return {"exec": given}

    def observe(self, case: Case) -> tuple[Outcome, Outcome]:
        """Return what kubectl does, and what podsettle does."""
        files = []
        for number, document in enumerate(case.files):
            path = self.directory / f"config-{number}"
            path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
            files.append(str(path))
        default = self.directory / ".kube" / "config"
        default.unlink(missing_ok=True)
        if case.default:
            default.parent.mkdir(exist_ok=True)
            default.write_bytes(path.read_bytes())
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.directory),
            "KUBECONFIG": os.pathsep.join(files),
            **case.env,
        }
        kubectl, podsettle = [
            self._outcome(ask(case, env)) for ask in (self._ask_kubectl, self._ask_podsettle)
        ]
        return kubectl, podsettle

    def _outcome(self, error: str) -> Outcome:
        seen = tuple(dict.fromkeys(self.seen))
        proxied = tuple(dict.fromkeys(each for proxy in self._proxies for each in proxy.asked))
        plugin: list[Any] = []
        for name in ("asked", "called"):
            file = self.directory / name
            lines = dict.fromkeys(file.read_text().splitlines()) if file.exists() else ()
            plugin += [json.loads(line) if name == "asked" else line for line in lines]
            file.unlink(missing_ok=True)
        self.seen.clear()
        for proxy in self._proxies:
            proxy.asked.clear()
        refused = bool(error) and not seen and not proxied
        return Outcome(refused, seen, proxied, tuple(plugin), error)

    def _ask_kubectl(self, case: Case, env: Mapping[str, str]) -> str:
        flags = [f"--context={case.context}"] if case.context else []
        flags += [f"--as={case.user}"] if case.user else []
        flags += [f"--as-group={group}" for group in case.groups]
        done = subprocess.run(
            [tool("kubectl"), "create", "token", "default", "--request-timeout=10s", *flags],
            env=env, cwd=self.directory, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        return done.stderr if done.returncode else ""

    def _ask_podsettle(self, case: Case, env: Mapping[str, str]) -> str:
        with mock.patch.dict(os.environ, env, clear=True), chdir(self.directory):
            return asyncio.run(self._request(case))

    async def _request(self, case: Case) -> str:
        try:
            server = await ApiServer.connect(
                context=case.context, impersonation=Impersonation(case.user, case.groups)
            )
            async with server:
                await server.request("POST", TOKEN_PATH.format(server.namespace), {})
        except (ApiError, NoClusterError, Unreachable) as error:
            return str(error)
        return ""


def document(
    cluster: Mapping[str, Any],
    user: Mapping[str, Any] | None = None,
    context: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a kubeconfig with one context."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        "clusters": [{"name": "c", "cluster": dict(cluster)}],
        "users": [{"name": "u", "user": {"token": "t"} if user is None else dict(user)}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", **(context or {})}}],
    }


def encoded(content: bytes | str) -> str:
    """Return a field with data."""
    data = content.encode() if isinstance(content, str) else content
    return base64.b64encode(data).decode()


def credential(
    status: Any, version: str = "client.authentication.k8s.io/v1", kind: str = "ExecCredential"
) -> str:
    """Return a script that prints an ExecCredential."""
    answer = json.dumps({"apiVersion": version, "kind": kind, "status": status})
    return f"cat <<'END'\n{answer}\nEND"
