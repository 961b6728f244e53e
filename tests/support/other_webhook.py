"""A second mutating webhook, as a service mesh brings one: it injects an init container, or labels
the pod."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trustme
import uvicorn

from tests.support.process import free_port
from tests.support.waiting import await_that

INJECTED = {
    "name": "late",
    "image": "registry.example/mesh/init:1",
    "command": ["/mesh-init", "--quick"],
}


def _answer(
    review: dict[str, Any],
    position: int | None,
    injected: dict[str, Any],
    labels: dict[str, str] | None,
) -> dict[str, Any]:
    request = review["request"]
    present = request["object"]["spec"].get("initContainers")
    if labels is not None:
        operations: list[dict[str, Any]] = [
            {"op": "add", "path": "/metadata/labels", "value": labels}
        ]
    elif any(container["name"] == injected["name"] for container in present or []):
        operations = []
    elif present is None:
        operations = [{"op": "add", "path": "/spec/initContainers", "value": [injected]}]
    else:
        where = "-" if position is None else str(position)
        operations = [{"op": "add", "path": f"/spec/initContainers/{where}", "value": injected}]
    return {
        "apiVersion": review["apiVersion"],
        "kind": review["kind"],
        "response": {
            "uid": request["uid"],
            "allowed": True,
            "patchType": "JSONPatch",
            "patch": base64.b64encode(json.dumps(operations).encode()).decode(),
        },
    }


@contextmanager
def start_other_webhook(
    directory: Path,
    position: int | None,
    injected: dict[str, Any] = INJECTED,
    *,
    labels: dict[str, str] | None = None,
) -> Iterator[tuple[str, bytes]]:
    """Serve it; gives its URL and CA. `position` None appends, a number inserts there.

    With `labels` it injects nothing, and gives the pod these instead of its own.
    """

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        answer = json.dumps(_answer(json.loads(body), position, injected, labels)).encode()
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
