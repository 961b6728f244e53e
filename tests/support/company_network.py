"""A company's network: a package index with a password, reached through a proxy that reads TLS."""

from __future__ import annotations

import base64
import contextlib
import html
import re
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import trustme

INDEX_HOST = "packages.company.example"
USER = "builder"
PASSWORD = "not-to-be-found-in-any-layer"


@dataclass(frozen=True)
class Company:
    """Where its proxy listens, the CA that signs what the proxy presents, what was requested."""

    proxy: str
    ca: trustme.CA
    connected: list[str] = field(default_factory=list)
    downloaded: list[str] = field(default_factory=list)

    @property
    def pip_conf(self) -> str:
        return f"[global]\nindex-url = https://{USER}:{PASSWORD}@{INDEX_HOST}/simple/\n"


class _Proxy(ThreadingHTTPServer):
    company: Company
    wheels: Path
    leaf: ssl.SSLContext


@contextlib.contextmanager
def company(wheels: Path) -> Iterator[Company]:
    """Serve the files of `wheels` as a package index behind the proxy."""
    ca = trustme.CA()
    with _Proxy(("127.0.0.1", 0), _Tunnel) as proxy:
        proxy.company = Company(f"http://127.0.0.1:{proxy.server_address[1]}", ca)
        proxy.wheels, proxy.leaf = wheels, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ca.issue_cert(INDEX_HOST).configure_cert(proxy.leaf)
        thread = threading.Thread(target=proxy.serve_forever, daemon=True)
        thread.start()
        try:
            yield proxy.company
        finally:
            proxy.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: _Proxy

    def log_message(self, *arguments: object) -> None:
        """Nothing: tests read what Company records."""


class _Index(_Handler):
    """The simple repository API: `/simple/NAME/` and `/files/FILE`."""

    def do_GET(self) -> None:
        wanted = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.headers.get("Authorization") != wanted:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="packages"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if found := re.fullmatch(r"/simple/([a-z0-9-]+)/", self.path):
            self._send(self._page(found[1]).encode(), "text/html")
            return
        file = self.server.wheels / Path(self.path).name
        if not file.is_file():
            self.send_error(404)
            return
        self.server.company.downloaded.append(file.name)
        self._send(file.read_bytes(), "application/octet-stream")

    def _page(self, project: str) -> str:
        names = (file.name for file in sorted(self.server.wheels.iterdir()))
        links = (
            f'<a href="/files/{html.escape(name)}">{html.escape(name)}</a>'
            for name in names
            if re.sub("[-_.]+", "-", name.split("-")[0]).lower() == project
        )
        return f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>"

    def _send(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Tunnel(_Handler):
    """Ends TLS itself, with a certificate of the company's CA, and answers as the index does."""

    def do_CONNECT(self) -> None:
        self.server.company.connected.append(self.path)
        if self.path != f"{INDEX_HOST}:443":
            self.send_error(403)
            return
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        with (
            contextlib.suppress(OSError),  # a client that does not trust the CA ends the connection
            self.server.leaf.wrap_socket(self.connection, server_side=True) as client,
        ):
            _Index(client, self.client_address, self.server)
