"""An open-loop load generator: it sends reviews at a constant rate.

wrk, a closed-loop generator, waits for an answer before it sends the next request. While a server
stalls, wrk sends fewer requests, and the stall affects only one latency per connection. Here each
review has a scheduled time. Its latency is counted from that time, even if the review has to wait
for a free connection.

`python -m bench.open_loop` runs in a separate process, on a separate core. Between two reviews
it polls the clock instead of sleeping, because uvloop's timers have a resolution of milliseconds.
"""

from __future__ import annotations

import asyncio
import gc
import json
import ssl
import sys
from collections import deque
from pathlib import Path
from time import perf_counter
from typing import Any, cast
from urllib.parse import urlsplit

import uvloop

from bench.intervals import percentile

_HEAD_END = b"\r\n\r\n"
_WARM_UP_SECONDS = 0.5


class _Connection(asyncio.Protocol):
    """A connection that sends one request at a time."""

    def __init__(self, generator: OpenLoopGenerator) -> None:
        self._generator = generator
        self._received = b""
        self._due = 0.0
        self._is_last = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport has the interface of asyncio.Transport, but is no subclass.
        self._transport = cast(asyncio.Transport, transport)
        self._generator.idle.append(self)

    def send(self, request: bytes, due: float) -> None:
        """Send a request. `due` is its scheduled time."""
        self._due = due
        self._received = b""
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(_HEAD_END)
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if not end or len(body) < int(length):
            return
        self._generator.latencies.append(perf_counter() - self._due)
        if not head.startswith(b"HTTP/1.1 200 "):
            self._generator.failures.append(head.decode("latin-1"))
        if b"connection: close" in head.lower():
            # podsettle closes connections at random, so that clients spread over its replicas.
            self._is_last = True
            self._transport.close()
            self._generator.open_replacement()
        else:
            self._generator.idle.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._is_last:
            self._generator.failures.append(f"the server closed a connection: {exc}")


class OpenLoopGenerator:
    """The generator, with its connections to one server."""

    def __init__(self, url: str, ca: str) -> None:
        self._url = urlsplit(url)
        self._context = ssl.create_default_context(cafile=ca)
        self._opening: set[asyncio.Task[None]] = set()
        self.idle: deque[_Connection] = deque()
        self.latencies: list[float] = []
        self.delays: list[float] = []
        self.failures: list[str] = []

    async def open(self) -> None:
        """Open a connection."""
        await asyncio.get_running_loop().create_connection(
            lambda: _Connection(self),
            self._url.hostname or "",
            self._url.port or 443,
            ssl=self._context,
        )

    def open_replacement(self) -> None:
        """Open a connection in the background, in place of a closed one."""
        task = asyncio.create_task(self.open())
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    def encode_request(self, body: bytes) -> bytes:
        """Return the HTTP request for a review, with the API server's headers."""
        head = (
            f"POST {self._url.path}?timeout=10s HTTP/1.1\r\nHost: {self._url.netloc}\r\n"
            "User-Agent: kube-apiserver-admission\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def run(self, requests: list[bytes], rate: float, seconds: float) -> None:
        """Send the requests one after another at `rate` per second for `seconds`.

        Latencies, delays and failures are in the attributes with these names.
        """
        waiting: deque[tuple[bytes, float]] = deque()
        total = max(1, round(rate * seconds))
        number = 0
        start = perf_counter() + 0.01
        while len(self.latencies) < total and not self.failures:
            now = perf_counter()
            while number < total and (due_time := start + number / rate) <= now:
                self.delays.append(now - due_time)
                waiting.append((requests[number % len(requests)], due_time))
                number += 1
            while waiting and self.idle:
                self.idle.popleft().send(*waiting.popleft())
            if now > start + seconds + 30:
                self.failures.append(f"{total - len(self.latencies)} reviews were not answered")
            await asyncio.sleep(0)


async def _main(plan: dict[str, Any], bodies: list[bytes]) -> None:
    generator = OpenLoopGenerator(plan["url"], plan["ca"])
    for _ in range(plan["connections"]):
        await generator.open()
    requests = [generator.encode_request(body) for body in bodies]
    await generator.run(requests, plan["rate"], _WARM_UP_SECONDS)
    generator.latencies.clear()
    generator.delays.clear()
    gc.collect()
    gc.freeze()
    gc.disable()
    await generator.run(requests, plan["rate"], plan["seconds"])
    if generator.failures:
        sys.exit(generator.failures[0])
    figures = {
        "p99": percentile(generator.latencies, 99) * 1e3,
        "longest": max(generator.latencies) * 1e3,
        "delay": percentile(generator.delays, 99) * 1e3,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    plan = json.loads(sys.argv[1])
    uvloop.run(_main(plan, [Path(path).read_bytes() for path in plan["reviews"]]))
