"""Real registries (Debian's docker-registry), and servers that misbehave.

    with start_registry(tmp_path, ca) as registry:
        registry.push("team/app", "1", image_of(["/app"]))
        registry.requests("HEAD")   # what the registry logged

All listen on the loopback address, which podsettle asks only because the tests' policies spell it
out.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import trustme
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.support.process import free_port
from tests.support.waiting import TIMEOUT_SECONDS, await_that
from webhook.core.images import ImageConfig, ImageQuery, LookupRules, Unavailable
from webhook.images.lookup import ImageLookup

REGISTRY = "docker-registry"

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_CONFIG = "application/vnd.oci.image.config.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_CONFIG = "application/vnd.docker.container.image.v1+json"

USER, PASSWORD = "tester", "s3cret:with é"
_HASHED = "tester:$2y$05$Nnz6mXzB9ISZfUs2ZpkzgOLmtk1R.HPaVzvtF0TA6fS3Cw9g1jvL6"


class Image(NamedTuple):
    """An image in a registry: a manifest and its blobs."""

    manifest: bytes
    media_type: str
    blobs: tuple[bytes, ...]

    @property
    def digest(self) -> str:
        return digest_of(self.manifest)


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def image_of(
    entrypoint: Sequence[str] = (),
    cmd: Sequence[str] = (),
    *,
    architecture: str = "amd64",
    os: str = "linux",
    config_type: str = OCI_CONFIG,
    media_type: str = OCI_MANIFEST,
) -> Image:
    """Return an image without files. What is empty is left out of its configuration."""
    words = {"Entrypoint": [*entrypoint], "Cmd": [*cmd]}
    config: dict[str, Any] = {"config": {name: found for name, found in words.items() if found}}
    config |= {"os": os, "rootfs": {"type": "layers", "diff_ids": []}}
    if architecture:
        config["architecture"] = architecture
    blob = json.dumps(config).encode()
    described = {"mediaType": config_type, "digest": digest_of(blob), "size": len(blob)}
    manifest = {"schemaVersion": 2, "mediaType": media_type, "config": described, "layers": []}
    return Image(json.dumps(manifest).encode(), media_type, (blob,))


def index_of(*images: tuple[Image, Mapping[str, Any]], media_type: str = OCI_INDEX) -> Image:
    """Return an index. Each image comes with the further fields of its entry."""
    entries = [
        {"mediaType": i.media_type, "digest": i.digest, "size": len(i.manifest), **said}
        for i, said in images
    ]
    document = {"schemaVersion": 2, "mediaType": media_type, "manifests": entries}
    return Image(json.dumps(document).encode(), media_type, ())


def platform(architecture: str, os: str = "linux") -> dict[str, Any]:
    """Return the fields of an index entry for a platform."""
    return {"platform": {"os": os, "architecture": architecture}}


@dataclass
class RunningRegistry:
    """A running registry."""

    host: str
    log: Path
    client: httpx.Client
    authorize: Callable[[str], Mapping[str, str]]

    def push(self, repository: str, tag: str, *images: Image) -> str:
        """Store images, an index after what it names; the last gets the tag. Gives its digest."""
        for image in images:
            headers = self.authorize(f"repository:{repository}:pull,push")
            for blob in image.blobs:
                begun = self.client.post(f"/v2/{repository}/blobs/uploads/", headers=headers)
                assert begun.status_code == 202, begun.text
                done = self.client.put(
                    httpx.URL(begun.headers["Location"]).copy_add_param("digest", digest_of(blob)),
                    content=blob,
                    headers=headers,
                )
                assert done.status_code == 201, done.text
            reference = tag if image is images[-1] else image.digest
            put = self.client.put(
                f"/v2/{repository}/manifests/{reference}",
                content=image.manifest,
                headers={"Content-Type": image.media_type, **headers},
            )
            assert put.status_code == 201, put.text
        return images[-1].digest

    def requests(self, method: str = "", path: str = "") -> list[str]:
        """Return `METHOD /path STATUS` of each request of podsettle, from the registry's log."""
        found = re.findall(
            r'"([A-Z]+) (\S+) HTTP/1.1" (\d+) \d+ "[^"]*" "podsettle"', self.log.read_text()
        )
        return [" ".join(each) for each in found if method in each[0] and path in each[1]]


def _no_authorization(_scope: str) -> Mapping[str, str]:
    return {}


@contextmanager
def start_registry(
    directory: Path,
    ca: trustme.CA,
    *,
    authorize: Callable[[str], Mapping[str, str]] = _no_authorization,
    **configuration: Any,
) -> Iterator[RunningRegistry]:
    """Run a registry. Keywords are sections of its configuration."""
    host = f"127.0.0.1:{free_port()}"
    home = directory / f"registry-{host.rpartition(':')[2]}"
    home.mkdir()
    issued = ca.issue_cert("127.0.0.1")
    issued.cert_chain_pems[0].write_to_path(home / "tls.crt")
    issued.private_key_pem.write_to_path(home / "tls.key")
    tls = {"certificate": str(home / "tls.crt"), "key": str(home / "tls.key")}
    written = {
        "version": "0.1",
        "log": {"accesslog": {"disabled": False}},
        "storage": {"filesystem": {"rootdirectory": str(home / "data")}},
        "http": {"addr": host, "tls": tls, "secret": "s"},
        **configuration,
    }
    (home / "config.yml").write_text(yaml.safe_dump(written))
    log = home / "log"
    context = ssl.create_default_context()
    ca.configure_trust(context)
    with log.open("w") as output:
        process = subprocess.Popen(
            [REGISTRY, "serve", str(home / "config.yml")], stdout=output, stderr=output
        )
    try:
        with httpx.Client(
            base_url=f"https://{host}", verify=context, timeout=TIMEOUT_SECONDS
        ) as client:

            def answers() -> bool:
                assert process.poll() is None, log.read_text()
                try:
                    return client.get("/v2/").status_code in (200, 401)
                except httpx.TransportError:
                    return False

            await_that(answers, "the registry answers")
            yield RunningRegistry(host, log, client, authorize)
    finally:
        process.terminate()
        process.wait(TIMEOUT_SECONDS)


def basic(_scope: str) -> Mapping[str, str]:
    """Return the headers of a request by USER."""
    pair = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}


def htpasswd(directory: Path) -> dict[str, Any]:
    """Return the section `auth` of a registry's configuration that admits USER."""
    file = directory / "htpasswd"
    file.write_text(f"{_HASHED}\n")
    return {"htpasswd": {"realm": "tests", "path": str(file)}}


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Server:
    """A fake registry that may misbehave."""

    host: str = ""
    seen: list[web.Request] = field(default_factory=list)

    @property
    def paths(self) -> list[str]:
        return [f"{request.method} {request.path}" for request in self.seen]


@asynccontextmanager
async def start_server(ca: trustme.CA, handler: Handler, *names: str) -> AsyncIterator[Server]:
    """Run a server with one handler for all requests."""
    server = Server()

    async def handle(request: web.Request) -> web.StreamResponse:
        server.seen.append(request)
        return await handler(request)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1", *names).configure_cert(context)
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", handle)
    served = TestServer(app)
    await served.start_server(ssl=context, shutdown_timeout=0.1)
    async with served:
        server.host = f"127.0.0.1:{served.port}"
        yield server


def serving(image: Image, *more: Image) -> Handler:
    """Return a handler that serves the first image for any tag, and all images by digest."""
    blobs = {digest_of(blob): blob for each in (image, *more) for blob in each.blobs}
    manifests = {each.digest: each for each in (image, *more)}

    async def handle(request: web.Request) -> web.StreamResponse:
        kind, _, reference = request.path.rpartition("/")
        if kind.endswith("/blobs"):
            return web.Response(body=blobs[reference])
        found = manifests.get(reference, image)
        headers = {"Docker-Content-Digest": found.digest, "Content-Type": found.media_type}
        return web.Response(body=found.manifest, headers=headers)

    return handle


def query(
    image: str, *registries: str, mirrors: Mapping[str, str] | None = None, **fields: Any
) -> ImageQuery:
    """Return a query. Without `registries`, the registry of the image is allowed."""
    allowed = registries or (image.partition("/")[0],)
    rules = LookupRules(allowed, tuple((mirrors or {}).items()))
    return ImageQuery(image, rules, **{"namespace": "ci", "service_account": "default", **fields})


async def look_up(
    lookup: ImageLookup, asked: ImageQuery, seconds: float = 30
) -> ImageConfig | Unavailable:
    return (await lookup.find([asked], seconds))[asked]
