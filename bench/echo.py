"""The echo: a server that reads the body and sends one fixed answer.

Its speed is the upper bound for webhooks on this stack. `python -m bench.echo CERTS_DIR PORT
ANSWER` starts uvicorn with podsettle's settings (uvloop, httptools, no access log, the same TLS
context) and a minimal ASGI application. It does not decode the review.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from pathlib import Path

import uvicorn
from starlette.types import Receive, Scope, Send

from webhook.process_memory import tune_gc_for_server
from webhook.server.limits import DEFAULT_LIMITS
from webhook.server.run import listen
from webhook.tls.certificate_directory import CertificateDirectory


class Echo:
    """An ASGI application that sends one fixed answer."""

    def __init__(self, answer: bytes) -> None:
        self._body = answer
        self._headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(answer)).encode()),
        ]

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body, and send the fixed answer."""
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        await send({"type": "http.response.body", "body": self._body})


def main(certs: Path, port: int, answer: Path) -> None:
    """Serve until SIGTERM or SIGINT."""
    context = CertificateDirectory(certs).ssl_context()

    def use_context(_config: uvicorn.Config, _default: object) -> ssl.SSLContext:
        return context

    config = uvicorn.Config(
        Echo(answer.read_bytes()),
        http="httptools",
        ssl_context_factory=use_context,
        access_log=False,
        log_config=None,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=DEFAULT_LIMITS.idle_timeout_seconds,
        lifespan="off",
        ws="none",
    )
    tune_gc_for_server()
    server = uvicorn.Server(config)
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(server.serve(sockets=[listen("127.0.0.1", port)]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
