"""A proxy between podsettle and the API server, which a fault makes fail.

The creations of pods do not pass it, so their API server goes on working.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias

import aiohttp
from aiohttp import web

from tests.faults.http_thread import HttpThread
from tests.support.kube.cluster import LOOPBACK, Json, KubeCluster

Mode: TypeAlias = Literal["pass", "hang", "refuse", "500", "429", "half", "gone"]
"""`half` ends the connection in the middle of each body. `gone` answers each watch with 410, as an
API server does that has the resource version no more."""
_HALF_AN_EVENT = b'{"type":"MODIFIED","object":{"metadata":{"na'
_GONE = b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}\n'


class ApiProxy:
    """Passes requests to the API server. `to` makes one."""

    def __init__(self, cluster: KubeCluster) -> None:
        self._cluster = cluster
        self._server = HttpThread(self._handle)
        self._mode: Mode = "pass"
        self._passing = asyncio.Event()
        self._watches: list[tuple[web.Request, web.StreamResponse]] = []
        self._upstream: aiohttp.ClientSession

    @classmethod
    @contextmanager
    def to(cls, cluster: KubeCluster) -> Iterator[ApiProxy]:
        """Listen while the block runs."""
        proxy = cls(cluster)
        with proxy._server.serving():
            proxy._server.run(proxy._open())
            try:
                yield proxy
            finally:
                proxy.switch("500")
                proxy._server.run(proxy._upstream.close())

    def kubeconfig(self, directory: Path) -> Json:
        """Return what a kubeconfig says of the cluster behind the proxy."""
        ca = directory / "api-proxy-ca.crt"
        self._server.ca.cert_pem.write_to_path(str(ca))
        url = f"https://{LOOPBACK}:{self._server.port}"
        return {"server": url, "certificate-authority": str(ca)}

    def switch(self, mode: Mode) -> None:
        """Change the answers. Watches that are open stall with `hang`. They end with the others."""
        if self._mode == "refuse":
            self._server.listen()
        if mode == "refuse":
            self._server.refuse()
        self._server.run(self._switch(mode))

    def cut_watches(self) -> None:
        """End each watch in the middle of a line."""
        self._server.run(self._end_watches(_HALF_AN_EVENT))

    async def _open(self) -> None:
        self._passing.set()
        trust = ssl.create_default_context(cafile=self._cluster.ca_file)
        self._upstream = aiohttp.ClientSession(
            self._cluster.url,
            connector=aiohttp.TCPConnector(ssl=trust, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
        )

    async def _switch(self, mode: Mode) -> None:
        self._mode = mode
        if mode == "hang":
            self._passing.clear()
            return
        self._passing.set()
        if mode != "pass":
            await self._end_watches(b"")

    async def _end_watches(self, last: bytes) -> None:
        for request, response in list(self._watches):
            await _end(request, response, last)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        sent = await request.read()
        await self._passing.wait()
        if self._mode in ("500", "429"):
            return _failure(int(self._mode))
        if self._mode == "refuse":
            # The connection is older than the refusal.
            return await _end(request, web.StreamResponse(), b"")
        kept = ("Authorization", "Accept", "Content-Type")
        headers = {name: request.headers[name] for name in kept if name in request.headers}
        async with self._upstream.request(
            request.method, request.raw_path, data=sent, headers=headers
        ) as answer:
            response = web.StreamResponse(status=answer.status)
            response.content_type = answer.content_type
            await response.prepare(request)
            if "watch" not in request.query:
                body = await answer.read()
                if self._mode == "half":
                    return await _end(request, response, body[: len(body) // 2])
                await response.write(body)
            elif self._mode == "half":
                return await _end(request, response, _HALF_AN_EVENT)
            elif self._mode == "gone":
                await response.write(_GONE)
            else:
                await self._pass_events(answer, request, response)
            return response

    async def _pass_events(
        self, answer: aiohttp.ClientResponse, request: web.Request, response: web.StreamResponse
    ) -> None:
        watch = request, response
        self._watches.append(watch)
        try:
            async for events in answer.content.iter_any():
                await self._passing.wait()
                await response.write(events)
        finally:
            self._watches.remove(watch)


def _failure(code: int) -> web.Response:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
    headers = {"Retry-After": "1"} if code == 429 else {}
    text = json.dumps(status | {"message": "a fault of the test"})
    return web.Response(status=code, text=text, content_type="application/json", headers=headers)


async def _end(
    request: web.Request, response: web.StreamResponse, last: bytes
) -> web.StreamResponse:
    """Send the last bytes, and close the connection before the answer has ended."""
    if last:
        await response.write(last)
    if request.transport is not None:
        request.transport.close()
    return response
