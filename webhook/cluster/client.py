"""A client of the API server that sends and receives JSON, based on `kubernetes.aio`.

`kubernetes.aio` provides the authentication methods of kubeconfigs, in-cluster service accounts
whose tokens are rotated, TLS and proxies. podsettle does not use the library's typed models. They
take much memory, and they drop fields that are newer than the library.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
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
from webhook.cluster.watch import WatchLimits, lines_until_silent

Json = dict[str, Any]

_decode = msgspec.json.Decoder().decode
# The time limit for a request and its response, except for watches and streams.
_TIMEOUT_SECONDS = 10.0
# aiohttp needs this time to close TLS connections. The number is from the section "Graceful
# Shutdown" of its client documentation.
_CLOSE_SECONDS = 0.25


class PageMetadata(msgspec.Struct, rename="camel"):
    """The metadata of a page of a list."""

    resource_version: str
    next: str = msgspec.field(default="", name="continue")
    """The token for the next page. It is empty on the last page."""


class Page(msgspec.Struct):
    """A page of a list."""

    metadata: PageMetadata
    raw_items: list[msgspec.Raw] | None = msgspec.field(default=None, name="items")

    @property
    def items(self) -> Iterator[Json]:
        """The objects, decoded one at a time. Raises Unreachable.

        To decode all objects of a page together would take much memory and fragment the heap.
        """
        for raw_item in self.raw_items or ():
            try:
                yield _decode(raw_item)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise Unreachable(f"list: an object is not valid JSON: {error}") from None


_decode_page = msgspec.json.Decoder(Page).decode


class ApiServer:
    """A client for one API server. Use it with `async with`, which closes its connections."""

    def __init__(self, configuration: Configuration, namespace: str = "default") -> None:
        self.namespace = namespace
        """The default namespace of commands."""
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
        """Return a client for the first configured cluster, without sending a request.

        The configurations are tried in this order:

        1. the kubeconfig that the environment variable KUBECONFIG names
        2. the cluster in which this process runs
        3. `~/.kube/config`

        KUBECONFIG comes first because a CI job may run in a pod and use another cluster. With
        `in_cluster_first`, the second configuration comes first. The webhook sets it, because it
        serves the cluster in which it runs. `kubeconfig` and `context` have the meaning of
        kubectl's flags. If one of them is given, the second configuration is skipped.

        The second configuration uses no proxy. The other configurations use the kubeconfig's
        `proxy-url`, or HTTPS_PROXY.

        Raises NoClusterError if no cluster is configured, or if the configuration is not valid.
        """
        configuration = Configuration()
        # The client must not retry, because callers retry and have deadlines. The value None
        # disables retries. The client would convert False to 0, and 0 means unlimited retries of
        # 5xx responses.
        configuration.retries = None
        # kubectl accepts CAs that VERIFY_X509_STRICT rejects; see `webhook.tls_verification`.
        configuration.disable_strict_ssl_verification = True
        # podsettle reads KUBECONFIG itself, because the library reads it only when it is imported.
        kubeconfig_env = os.environ.get("KUBECONFIG")
        if (
            in_cluster()
            and (in_cluster_first or not kubeconfig_env)
            and not (kubeconfig or context)
        ):
            try:
                load_incluster_config(configuration)
                # HTTPS_PROXY is for registries. A company's proxy cannot reach the address of a
                # Service, and aiohttp does not support CIDRs in NO_PROXY.
                configuration.client_session_kwargs = {"trust_env": False}
                return cls(configuration, own_namespace())
            except Exception as error:
                raise NoClusterError(f"no cluster found: {error}") from None
        path = kubeconfig or kubeconfig_env or _default_kubeconfig()
        if not _any_exists(path):
            if kubeconfig:
                raise NoClusterError(f"{path} (--kubeconfig) does not exist")
            origin = " (KUBECONFIG)" if kubeconfig_env else ""
            raise NoClusterError(
                f"no cluster found: {path}{origin} does not exist; set KUBECONFIG, or run in a pod"
            )
        try:
            loader = await load_kube_config(
                config_file=path, context=context, client_configuration=configuration
            )
            current = loader.current_context["context"]
            namespace = current.get("namespace") or "default"
        except yaml.YAMLError as error:
            # The parser's message has several lines.
            reason = " ".join(str(error).split())
            raise NoClusterError(f"{path}: no cluster found: not YAML: {reason}") from None
        except Exception as error:  # The library has no common error for invalid kubeconfigs.
            raise NoClusterError(f"{path}: no cluster found: {error}") from None
        return cls(configuration, namespace)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections, and wait until they are closed."""
        await self._rest.close()
        # aiohttp closes TLS connections in the background, and the event loop must not end first.
        await asyncio.sleep(_CLOSE_SECONDS)

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
        """Send one request and return the decoded response.

        `path` includes the query. `timeout` is in seconds. Raises ApiError and Unreachable.
        """
        content = await self._request_bytes(method, path, body, content_type, accept, timeout)
        try:
            answer: Json = _decode(content)
        except msgspec.DecodeError:
            raise Unreachable(f"{method} {path}: the response is not JSON") from None
        return answer

    async def page(self, path: str, accept: str) -> Page:
        """Request one page of a list. Raises ApiError and Unreachable."""
        content = await self._request_bytes(
            "GET", path, None, "application/json", accept, _TIMEOUT_SECONDS
        )
        try:
            return _decode_page(content)
        except msgspec.DecodeError:
            raise Unreachable(f"GET {path}: the response is not a list") from None

    @asynccontextmanager
    async def watch(
        self, path: str, accept: str, seconds: float, limits: WatchLimits
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Start a watch, and yield an iterator over the lines of the response.

        Each line contains one event. The iterator ends after `seconds`, or when no line arrives for
        `limits.silent_seconds`. Raises ApiError. Raises Unreachable if the connection fails, or if
        the API server does not answer in time.
        """
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with asyncio.timeout(limits.answer_seconds):
                response = await self._send("GET", path, None, "application/json", accept, timeout)
            async with response:
                if response.status >= 300:
                    raise ApiError(response.status, status_message(await response.read()))
                yield lines_until_silent(response.content, limits.silent_seconds)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"GET {path}: {describe(error)}") from None

    async def stream(self, path: str, max_silence_seconds: float) -> AsyncGenerator[bytes]:
        """Yield the chunks of a response body when they arrive, so that it can have any length.

        Raises ApiError. Raises Unreachable if the connection fails, if the body is incomplete, or
        if no data arrives for `max_silence_seconds`.
        """
        timeout = aiohttp.ClientTimeout(
            total=None, connect=_TIMEOUT_SECONDS, sock_read=max_silence_seconds
        )
        try:
            response = await self._send("GET", path, None, "application/json", "*/*", timeout)
            async with response:
                if response.status >= 300:
                    raise ApiError(response.status, status_message(await response.read()))
                while chunk := await response.content.readany():
                    yield chunk
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"GET {path}: {describe(error)}") from None

    async def _request_bytes(
        self,
        method: str,
        path: str,
        body: Any,
        content_type: str,
        accept: str,
        timeout: float,  # noqa: ASYNC109
    ) -> bytes:
        """Send one request and return the response body. Raises ApiError and Unreachable."""
        try:
            response = await self._send(method, path, body, content_type, accept, timeout)
            content = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"{method} {path}: {describe(error)}") from None
        if response.status >= 300:
            raise ApiError(response.status, status_message(content))
        return content

    async def _send(
        self,
        method: str,
        path: str,
        body: Any,
        content_type: str,
        accept: str,
        timeout: Any,  # noqa: ASYNC109
    ) -> aiohttp.ClientResponse:
        """Send one request with credentials, and return the response with its body unread.

        `timeout` is in seconds, or a ClientTimeout.
        """
        headers = {"Content-Type": content_type, "Accept": accept, "User-Agent": "podsettle"}
        settings: Mapping[str, Any] = await self._configuration.auth_settings()
        for setting in settings.values():
            headers[setting["key"]] = setting["value"]
        if not isinstance(timeout, aiohttp.ClientTimeout):
            timeout = aiohttp.ClientTimeout(total=timeout)
        wrapper = await self._rest.request(
            method, self.url + path, headers=headers, body=body, _request_timeout=timeout
        )
        response: aiohttp.ClientResponse = wrapper.response
        return response


def _default_kubeconfig() -> str:
    """Return the kubeconfig that kubectl uses by default."""
    return str(Path("~/.kube/config").expanduser())


def _any_exists(paths: str) -> bool:
    """Return whether at least one file exists in a list of paths, as in KUBECONFIG."""
    return any(Path(path).expanduser().exists() for path in paths.split(os.pathsep) if path)
