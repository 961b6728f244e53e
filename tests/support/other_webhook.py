"""A second mutating webhook, as a service mesh brings one: it injects an init container, or labels
the pod."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trustme
import uvicorn

from tests.support.kube.cluster import Json
from tests.support.process import free_port
from tests.support.waiting import await_that

INJECTED = {
    "name": "late",
    "image": "registry.example/mesh/init:1",
    "command": ["/mesh-init", "--quick"],
}


def _injection(pod: Json, position: int | None) -> list[Json]:
    present = pod["spec"].get("initContainers")
    if any(container["name"] == INJECTED["name"] for container in present or []):
        return []
    if present is None:
        return [{"op": "add", "path": "/spec/initContainers", "value": [INJECTED]}]
    where = "-" if position is None else str(position)
    return [{"op": "add", "path": f"/spec/initContainers/{where}", "value": INJECTED}]


def _answer(review: Json, operations_for: Callable[[Json], list[Json]]) -> Json:
    request = review["request"]
    patch = json.dumps(operations_for(request["object"])).encode()
    return {
        "apiVersion": review["apiVersion"],
        "kind": review["kind"],
        "response": {
            "uid": request["uid"],
            "allowed": True,
            "patchType": "JSONPatch",
            "patch": base64.b64encode(patch).decode(),
        },
    }


@contextmanager
def start_other_webhook(
    directory: Path,
    position: int | None,
    *,
    labels: dict[str, str] | None = None,
) -> Iterator[tuple[str, bytes]]:
    """Serve it; gives its URL and CA. `position` None appends, a number inserts there.

    With `labels` it injects nothing, and gives the pod these instead of its own.
    """

    def operations_for(pod: Json) -> list[Json]:
        if labels is not None:
            return [{"op": "add", "path": "/metadata/labels", "value": labels}]
        return _injection(pod, position)

    with start_webhook(directory, operations_for) as served:
        yield served


@contextmanager
def start_webhook(
    directory: Path, operations_for: Callable[[Json], list[Json]]
) -> Iterator[tuple[str, bytes]]:
    """Serve a webhook that answers with operations for each pod; gives its URL and CA."""

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        answer = json.dumps(_answer(json.loads(body), operations_for)).encode()
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    ca = trustme.CA()
    leaf = ca.issue_cert("127.0.0.1")
    certificate = directory / "webhook.pem"
    leaf.private_key_and_cert_chain_pem.write_to_path(certificate)

    def context(_config: uvicorn.Config, _default: object) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(certificate)
        return made

    port = free_port()
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            port=port,
            ssl_context_factory=context,
            lifespan="off",
            log_config=None,
            access_log=False,
        )
    )
    # Signals belong to the test run.
    thread = threading.Thread(target=lambda: asyncio.run(server._serve()))
    thread.start()
    await_that(lambda: server.started, "the webhook listens")
    try:
        yield f"https://127.0.0.1:{port}/mutate", ca.cert_pem.bytes()
    finally:
        server.should_exit = True
        thread.join()
