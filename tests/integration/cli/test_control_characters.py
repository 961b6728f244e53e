"""Commands on an API server and on files whose texts contain control characters."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.factories import Json
from tests.support.kubeconfigs import write_kubeconfig
from tests.support.process import podsettle
from tests.support.recording_server import Handler
from tests.support.recording_server import serving as in_threads

EVIL = "\x1b]0;title\x07\x1b[2J\u202e\u3164\r\npodsettle: forged\x7f"
"""ESC, BEL, RLO, a filler that is invisible, CR, a line break and DEL."""
_COMPONENT = "app.kubernetes.io/component"
_KEPT = (
    _COMPONENT, "apiVersion", "continue", "creationTimestamp", "key", "kind", "operator", "phase",
    "resourceVersion", "restartPolicy", "status", "type", "uid",
)  # fmt: skip
"""Fields without which commands would not read the object."""


def evil(value: Any, key: str = "") -> Any:
    """Return a JSON value with EVIL behind each text, except in fields of a fixed form."""
    if isinstance(value, str):
        return value if key in _KEPT or key.endswith(("At", "Time")) else value + EVIL
    if isinstance(value, list):
        return [evil(each, key) for each in value]
    if isinstance(value, dict):
        return {name: evil(each, name) for name, each in value.items()}
    return value


def metadata(name: str, **more: Any) -> Json:
    return {
        "name": name, "uid": "u", "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z", **more,
    }  # fmt: skip


def pod(state: Json, phase: str) -> Json:
    noted = {"podsettle.dev/summary": "kept alive", "podsettle.dev/skipped": "c/x=NoCommand"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata("p", namespace="ci", annotations=noted),
        "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"},
        "status": {
            "phase": phase,
            "containerStatuses": [{"name": "c", "image": "i", "state": state}],
        },
    }


_WAITING = evil(pod({"waiting": {"reason": "CrashLoopBackOff", "message": "m"}}, "Pending"))
_ENDED = evil(pod({"terminated": {"exitCode": 0, "reason": "Completed"}}, "Succeeded"))
_POLICY = {
    "apiVersion": "podsettle.dev/v1alpha1",
    "kind": "SettlePolicy",
    "metadata": metadata("policy"),
    "spec": {"description": "d", "unknown": "x"},
}
_NODE = {
    "metadata": metadata("node"),
    "status": {
        "nodeInfo": {"containerRuntimeVersion": "cri-o://1.33.1", "kubeletVersion": "v1.33.0"}
    },
}
_EVENT = {
    "metadata": metadata("event"), "type": "Warning", "reason": "Failed", "message": "exit 255",
    "involvedObject": {"kind": "Pod", "name": "p", "namespace": "ci"},
}  # fmt: skip
_DEPLOYMENT = {
    "metadata": metadata("podsettle", namespace="podsettle"),
    "spec": {
        "selector": {},
        "template": {
            "metadata": {"labels": {_COMPONENT: "webhook"}},
            "spec": {"containers": [{"name": "c", "image": "i", "args": ["a"]}]},
        },
    },
}
_WEBHOOKS = {
    "metadata": metadata("podsettle"),
    "webhooks": [
        {"name": "w", "clientConfig": {"service": {"name": "s", "namespace": "podsettle"}}}
    ],
}
_LISTS = {
    "settlepolicies": _POLICY, "nodes": _NODE, "events": _EVENT, "deployments": _DEPLOYMENT,
    "mutatingwebhookconfigurations": _WEBHOOKS, "pods": _ENDED,
    "namespaces": {"metadata": metadata("ci")},
    "runtimeclasses": {"metadata": metadata("class"), "handler": "runc"},
}  # fmt: skip

Answer = Callable[[str], tuple[int, Any]]


def refuse(_path: str) -> tuple[int, Any]:
    return 500, {"kind": "Status", "message": f"no{EVIL}"}


def waiting(path: str) -> tuple[int, Any]:
    """Answer about a pod that waits, and ends in its first watch."""
    return 200, {"type": "MODIFIED", "object": _ENDED} if "watch=1" in path else _WAITING


def objects(path: str) -> tuple[int, Any]:
    """Answer with an object or a list for each path."""
    resource = path.partition("?")[0].rpartition("/")[2]
    if resource == "version":
        return 200, {"gitVersion": f"v1.36.0{EVIL}"}
    if resource in ("p", "log"):
        return 200, _ENDED
    if resource == "selfsubjectaccessreviews":
        return 201, {"status": {"allowed": True}}
    if resource not in _LISTS:
        return 404, {"kind": "Status", "message": f"not found{EVIL}"}
    items = [evil(_LISTS[resource])]
    return 200, {"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}


@contextmanager
def serving(answer: Answer, directory: Path) -> Iterator[dict[str, str]]:
    """Run an API server, and yield an environment with its kubeconfig."""

    class Answering(Handler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:  # noqa: N802 (the name is http.server's)
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, value = answer(self.path)
            self.answer(status, json.dumps(value).encode() + b"\n")

        do_POST = do_GET  # noqa: N815 (the name is http.server's)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    kubeconfig = write_kubeconfig(directory, f"http://127.0.0.1:{server.server_address[1]}")
    with in_threads(server):
        yield {**os.environ, "KUBECONFIG": str(kubeconfig)}


def check_output(*texts: str, has_evil: bool = True) -> None:
    """Check that no character acts on a terminal, and that EVIL was printed."""
    text = "".join(texts)
    assert [each for each in text if not each.isprintable() and each != "\n"] == []
    assert "\u3164" not in text
    forged = ("podsettle: forged", "podsettle: podsettle: forged")
    assert not any(line.startswith(forged) for line in text.split("\n"))
    assert has_evil == ("\\x1b" in text or "\\u001b" in text), text


_ON_A_POD = ("wait", "p", "-n", "ci", "--backoff-total", "0s")
_LOGS = ("logs", "p", "-n", "ci", "--backoff-total", "0s")
_EXPLAIN = ("explain", "pod/p", "-n", "ci")


@pytest.mark.parametrize(
    ("answer", "command"),
    [
        (refuse, _ON_A_POD),
        (refuse, _LOGS),
        (refuse, _EXPLAIN),
        (refuse, ("scan",)),
        (refuse, ("doctor",)),
        (refuse, ("version",)),
        (refuse, ("version", "-o", "json")),
        (waiting, _ON_A_POD),
        (waiting, _LOGS),
        (objects, _ON_A_POD),
        (objects, (*_ON_A_POD, "-o", "json")),
        (objects, _EXPLAIN),
        (objects, (*_EXPLAIN, "-o", "json")),
        (objects, ("scan",)),
        (objects, ("scan", "-o", "json")),
        (objects, ("scan", "-o", "html")),
        (objects, ("doctor",)),
        (objects, ("doctor", "-o", "json")),
    ],
    ids=lambda value: value.__name__ if callable(value) else " ".join(value),
)
def test_texts_of_a_cluster_cannot_control_the_terminal(
    answer: Answer, command: tuple[str, ...], tmp_path: Path
) -> None:
    with serving(answer, tmp_path) as environment:
        done = podsettle(*command, env=environment)
    check_output(done.stdout, done.stderr)
    if "json" in command:
        json.loads(done.stdout)


@pytest.mark.parametrize(
    "command",
    [
        ("preview",),
        *(("preview", "-o", output) for output in ("diff", "patch", "json", "yaml")),
        ("check",),
        ("check", "-o", "json"),
        ("scan", "--manifests"),
    ],
    ids=" ".join,
)
def test_texts_of_files_cannot_control_the_terminal(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    policy = {
        **_POLICY,
        "spec": {
            "namespaceSelector": {},
            "description": "d",
            "remedies": {"postInitSleep": {"when": "Always", "containers": ["*"]}},
        },
    }
    wrapped = {"name": "c", "image": "i", "command": ["sh", f"x{EVIL}"]}
    workload = evil(pod({}, "Pending"))
    workload["spec"]["containers"] = [wrapped, evil(wrapped)]
    bad = {**_POLICY, "metadata": {"name": "bad"}, "spec": {f"unknown{EVIL}": 1}}
    documents = [policy, workload, evil(_NODE | {"apiVersion": "v1", "kind": "Node"})]
    documents += [bad] if command[0] == "check" else []
    (tmp_path / "all.yaml").write_text("---\n".join(f"{json.dumps(each)}\n" for each in documents))
    options = ("--manifests", tmp_path) if command[0] == "preview" else ()
    done = podsettle(*command, tmp_path / "all.yaml", *options)
    check_output(done.stdout, done.stderr)
