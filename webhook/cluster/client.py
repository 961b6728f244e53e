"""A connection to the API server: JSON in and out, on `kubernetes`' asyncio client.

The client brings what has to be right and is tedious: kubeconfig with all its ways to log in, the
in-cluster account with tokens that change, TLS, proxies. Its typed models stay out: they would
cost the memory and lose the fields that are newer than they are.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import aiohttp
import msgspec
import yaml

from webhook.cluster.errors import (
    ApiError,
    NoClusterError,
    Unreachable,
    describe,
    status_message,
)
from webhook.cluster.in_cluster import in_cluster, own_namespace
from webhook.cluster.rest_client import (
    Configuration,
    RestClient,
    load_incluster_config,
    load_kube_config,
)

Json = dict[str, Any]

_decode = msgspec.json.Decoder().decode
_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """How long a watch may take to answer, and be silent, in seconds.

    Silence is no fault. The API server sends a bookmark a minute only of a kind of object that has
    changed since it started (`cacher.go` in k8s.io/apiserver); otherwise it has nothing to send
    until etcd reports progress, every 10 minutes by default. But a connection that died without a
    FIN is silent, too. So a silent watch ends in good order, and the next one continues from the
    last version on another connection: nothing is lost where the old one was alive, and no more
    than this time where it was not. The next watch is the proof: if the API server does not answer
    it, that is a fault.

    Why not TCP keep-alive: the kernel of a proxy, or of an API server that hangs, answers it. Why
    not another request beside the watch: it shows that the API server answers, not that this watch
    would be told of a change.
    """

    answer_seconds: float = 10.0
    """Until the head of the answer, which the API server sends at once."""
    silent_seconds: float = 75.0
    """Longer than from one bookmark to the next; with `answer_seconds` below 90."""
    stable_seconds: float = 15.0
    """A watch that breaks after this time is no fault: proxies cut connections that are silent."""


class PageMetadata(msgspec.Struct, rename="camel"):
    """Where a list stands."""

    resource_version: str
    next: str = msgspec.field(default="", name="continue")
    """What the next page is asked for with; empty on the last one."""


class Page(msgspec.Struct):
    """A part of a list."""

    metadata: PageMetadata
    raw: list[msgspec.Raw] | None = msgspec.field(default=None, name="items")

    @property
    def items(self) -> Iterator[Json]:
        """Its objects, decoded one by one: all at once they are many times what is kept of them,
        and the memory that they leave behind is in pieces. Raises Unreachable."""
        for raw in self.raw or ():
            try:
                yield _decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise Unreachable(f"an object in a list is not JSON: {error}") from None


_decode_page = msgspec.json.Decoder(Page).decode


class ApiServer:
    """An API server that podsettle may ask."""

    def __init__(self, configuration: Configuration, namespace: str = "default") -> None:
        self.namespace = namespace
        """What commands act on that are told no other."""
        self._configuration = configuration
        self._rest = RestClient(configuration)
        self.url: str = configuration.host

    @classmethod
    async def connect(
        cls,
        *,
        in_cluster_first: bool = False,
        kubeconfig: str | None = None,
        context: str | None = None,
    ) -> Self:
        """The cluster of the kubeconfig that KUBECONFIG names, else the one that podsettle runs in,
        else the one of `~/.kube/config`. With `in_cluster_first`, the second before the first.
        `kubeconfig` and `context` are kubectl's flags: with either, never the second.

        A job of a CI system runs in a pod and may yet be told of another cluster; the webhook
        serves the one that it runs in.

        In the cluster no proxy is used. For a kubeconfig: its `proxy-url`, else HTTPS_PROXY.

        Nothing is sent yet. The caller closes it, by `async with`.

        Raises NoClusterError where neither says which.
        """
        configuration = Configuration()
        # Callers retry, each in its own way; a retry underneath would outlive their deadlines.
        # Not False: the client takes that for the number 0, and 0 for no limit to retries on 5xx.
        configuration.retries = None
        # As `webhook.tls_verification`: kubectl takes CAs that VERIFY_X509_STRICT refuses.
        configuration.disable_strict_ssl_verification = True
        # Read here, not by the library: it looks at the variable once, when imported.
        variable = os.environ.get("KUBECONFIG")
        if in_cluster() and (in_cluster_first or not variable) and not (kubeconfig or context):
            try:
                load_incluster_config(configuration)
                # HTTPS_PROXY is for registries. A proxy of the company does not reach a Service's
                # address, and aiohttp does not read the CIDR of the Services in NO_PROXY.
                configuration.client_session_kwargs = {"trust_env": False}
                return cls(configuration, own_namespace())
            except Exception as error:
                raise NoClusterError(f"no cluster to talk to: {error}") from None
        path = kubeconfig or variable or _default_kubeconfig()
        if not _any_exists(path):
            if kubeconfig:
                raise NoClusterError(f"{path} (--kubeconfig) is not there")
            named = " (KUBECONFIG)" if variable else ""
            raise NoClusterError(
                f"no cluster to talk to: {path}{named} is not there; set KUBECONFIG, or run in a "
                "pod"
            )
        try:
            loader = await load_kube_config(
                config_file=path, context=context, client_configuration=configuration
            )
            chosen = loader.current_context["context"]
            namespace = chosen.get("namespace") or "default"
        except yaml.YAMLError as error:
            # The library's words go over several lines.
            why = " ".join(str(error).split())
            raise NoClusterError(f"{path}: no cluster to talk to: not YAML: {why}") from None
        except Exception as error:  # Whatever a broken kubeconfig makes the library raise.
            raise NoClusterError(f"{path}: no cluster to talk to: {error}") from None
        return cls(configuration, namespace)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close what is open."""
        await self._rest.close()
        # aiohttp lets TLS connections end in the background ("Graceful Shutdown" in its client
        # documentation); without this pause the event loop would be gone before they have.
        await asyncio.sleep(0.25)

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout: float = _TIMEOUT_SECONDS,  # noqa: ASYNC109
    ) -> Json:
        """One call; `path` carries its query. Raises ApiError and Unreachable."""
        content = await self._read(method, path, body, content_type, accept, timeout)
        try:
            answer: Json = _decode(content)
        except msgspec.DecodeError:
            raise Unreachable(f"{method} {path}: the answer is not JSON") from None
        return answer

    async def page(self, path: str, accept: str) -> Page:
        """One page of a list. Raises ApiError and Unreachable."""
        content = await self._read("GET", path, None, "application/json", accept, _TIMEOUT_SECONDS)
        try:
            return _decode_page(content)
        except msgspec.DecodeError:
            raise Unreachable(f"GET {path}: the answer is no list") from None

    @asynccontextmanager
    async def watch(
        self, path: str, accept: str, seconds: float, limits: WatchLimits
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The lines of a watch, for `seconds` at the most, and until it is silent for too long.

        Raises ApiError and Unreachable, the latter also where the watch is not answered.
        """
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with asyncio.timeout(limits.answer_seconds):
                response = await self._open("GET", path, None, "application/json", accept, timeout)
            async with response:
                if response.status >= 300:
                    raise ApiError(response.status, status_message(await response.read()))
                yield _lines_until_silent(response.content, limits.silent_seconds)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"GET {path}: {describe(error)}") from None

    async def stream(self, path: str, silence: float) -> AsyncGenerator[bytes]:
        """A body as it comes, of any length.

        Raises ApiError and Unreachable, the latter also where the body breaks off, or nothing is
        heard for `silence` seconds.
        """
        timeout = aiohttp.ClientTimeout(total=None, connect=_TIMEOUT_SECONDS, sock_read=silence)
        try:
            response = await self._open("GET", path, None, "application/json", "*/*", timeout)
            async with response:
                if response.status >= 300:
                    raise ApiError(response.status, status_message(await response.read()))
                while chunk := await response.content.readany():
                    yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"GET {path}: {describe(error)}") from None

    async def _read(
        self,
        method: str,
        path: str,
        body: Any,
        content_type: str,
        accept: str,
        timeout: float,  # noqa: ASYNC109
    ) -> bytes:
        try:
            response = await self._open(method, path, body, content_type, accept, timeout)
            content = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"{method} {path}: {describe(error)}") from None
        if response.status >= 300:
            raise ApiError(response.status, status_message(content))
        return content

    async def _open(
        self,
        method: str,
        path: str,
        body: Any,
        content_type: str,
        accept: str,
        timeout: Any,  # noqa: ASYNC109
    ) -> aiohttp.ClientResponse:
        headers = {"Content-Type": content_type, "Accept": accept, "User-Agent": "podsettle"}
        settings: Mapping[str, Any] = await self._configuration.auth_settings()
        for setting in settings.values():
            headers[setting["key"]] = setting["value"]
        if not isinstance(timeout, aiohttp.ClientTimeout):
            timeout = aiohttp.ClientTimeout(total=timeout)
        made = await self._rest.request(
            method, self.url + path, headers=headers, body=body, _request_timeout=timeout
        )
        response: aiohttp.ClientResponse = made.response
        return response


async def _lines_until_silent(
    content: aiohttp.StreamReader, seconds: float
) -> AsyncIterator[bytes]:
    silence = asyncio.timeout(seconds)
    try:
        while True:
            silence = asyncio.timeout(seconds)
            async with silence:
                line = await content.readline()
            if not line:
                return
            yield line
    except TimeoutError:
        if not silence.expired():
            raise


def _default_kubeconfig() -> str:
    """The kubeconfig that counts where nobody names one."""
    return str(Path("~/.kube/config").expanduser())


def _any_exists(paths: str) -> bool:
    """Whether one of the files that KUBECONFIG names is there."""
    return any(Path(path).expanduser().exists() for path in paths.split(os.pathsep) if path)
