"""A client of the API server that sends and receives JSON, based on `kubernetes.aio`.

`kubernetes.aio` provides the HTTP session and finds the API server of a pod's cluster. podsettle
does not use the library's typed models. They take much memory, and they drop fields that are newer
than the library.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode

import aiohttp
import msgspec
from aiohttp.http_exceptions import LineTooLong
from multidict import CIMultiDict

from webhook.cluster.errors import (
    ApiError,
    NoClusterError,
    TooLargeError,
    Unreachable,
    describe,
    is_of_api_server,
    status_message,
    token_of,
)
from webhook.cluster.own_pod import default_namespace, in_cluster
from webhook.cluster.raw_responses import Page, RawAnswer, page_of, server_time
from webhook.cluster.rest_client import RestClient
from webhook.cluster.service_account import from_service_account
from webhook.cluster.watch import WatchLimits, lines_until_silent
from webhook.core.constants import OBJECT_NAME
from webhook.core.pod import DECODE_ERRORS
from webhook.core.types import Json
from webhook.kubeconfig.access import Access, Impersonation, from_kubeconfig
from webhook.kubeconfig.credentials import AccessError, Credential
from webhook.kubeconfig.paths import kubeconfig_paths

log = logging.getLogger(__name__)

_decode = msgspec.json.Decoder(Json).decode
# The time limit for a request and its response, except for watches and streams.
_TIMEOUT_SECONDS = 10.0
# The minimum pause before a retry for which the API server asks, also with `Retry-After: 0`.
_MIN_PAUSE_SECONDS = 1
_SECONDS = re.compile("[0-9]{1,9}")
# aiohttp needs this time to close TLS connections. The number is from the section "Graceful
# Shutdown" of its client documentation.
_CLOSE_SECONDS = 0.25
# The limit for a response. etcd stores at most 1.5 MiB of an object, which become 9 MiB of JSON if
# each character is escaped. /metrics of an API server has up to about 10 MiB.
_MAX_RESPONSE_BYTES = 32 * 1024 * 1024
# After a smaller page, the next one has twice as many objects.
_SMALL_PAGE_BYTES = 2 * 1024 * 1024


class PageLimits(NamedTuple):
    """The limits of the pages of a list, and of each request for one."""

    first_items: int = 500
    """The number of objects of the first page. The default is that of client-go and kubectl."""
    max_items: int = 500
    max_bytes: int = 4 * 1024 * 1024
    """That of a page of several objects. To split it into them blocks the event loop for 3 ms."""
    timeout_seconds: float = _TIMEOUT_SECONDS
    continues: bool = False
    """Whether a list whose version expires continues with the current objects. No object comes
    twice, but the pages are of several versions."""


class ApiServer:
    """A client for one API server. Use it with `async with`, which closes its connections."""

    def __init__(
        self,
        access: Access,
        *,
        max_response_bytes: int = _MAX_RESPONSE_BYTES,
        request_timeout: timedelta | None = None,
    ) -> None:
        """Create a client. `request_timeout` replaces the limits of callers; 0 means none."""
        self.namespace = access.namespace or default_namespace()
        """The default namespace of commands."""
        self._access = access
        self._max_response_bytes = max_response_bytes
        self._request_timeout = request_timeout
        self._identity: tuple[bytes, bytes, bytes] | None = None
        self._clients: list[RestClient] = []
        self.url: str = access.url
        self.title = f"{access.context} ({self.url})" if access.context else self.url
        """The context and the address of the API server, for messages."""
        self.time: datetime | None = None
        """The time of the last response that says one, by the clock of the API server."""
        self.clock_behind = timedelta(0)
        """How far the clock of this machine was behind the API server's at the last response."""

    @classmethod
    async def connect(
        cls,
        *,
        in_cluster_first: bool = False,
        kubeconfig: str | None = None,
        context: str | None = None,
        impersonation: Impersonation = Impersonation(),  # noqa: B008 (it is frozen)
        request_timeout: timedelta | None = None,
    ) -> Self:
        """Return a client for the cluster that kubectl would use, without sending a request.

        That is the cluster of the kubeconfig, else the cluster in which this process runs. With
        `in_cluster_first`, the order is the other one. The webhook sets it, because it serves the
        cluster in which it runs. `kubeconfig` and `context` have the meaning of kubectl's flags. If
        one of them is given, only a kubeconfig is used. `impersonation` is whose rights the
        requests have. `request_timeout` is the limit for each request and its response, except for
        watches and streams. 0 means none.

        Raises NoClusterError if no cluster is configured, or if the configuration is not valid.
        """
        paths = kubeconfig_paths(kubeconfig)
        wants_own = in_cluster_first or not (paths.origin or paths.files)
        if in_cluster() and wants_own and not (kubeconfig or context):
            access, where = from_service_account(impersonation), ""
        elif not paths.files:
            raise NoClusterError(paths.missing_message)
        else:
            where = f"{paths.text}: "
            try:
                access = from_kubeconfig(paths, context, impersonation)
            except AccessError as error:
                raise NoClusterError(str(error)) from None
        server = cls(access, request_timeout=request_timeout)
        if not OBJECT_NAME.fullmatch(server.namespace):
            # In a URL, one such as `..` would lead to other objects.
            problem = f"the namespace {server.namespace!r} is not a valid name"
            raise NoClusterError(f"{where}no cluster found: {problem}")
        try:
            server._client(await access.credentials.current())
        except AccessError as error:
            raise NoClusterError(str(error)) from None
        except Exception as error:  # Those of OpenSSL, and of files that cannot be read.
            message = f"{where}no cluster found: a certificate or key is not valid: {error}"
            raise NoClusterError(message) from None
        return server

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections, and wait until they are closed."""
        for client in self._clients:
            await client.close()
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

        `path` includes the query. `timeout` is in seconds. Raises ApiError, and Unreachable also
        for a response that is no object, too large, or nested too deeply.
        """
        async with self._sent(method, path, body, content_type, accept, timeout) as response:
            content = await self._checked(response, f"{method} {path}")
        try:
            return _decode(content)
        except DECODE_ERRORS as error:
            raise self._malformed(f"{method} {path}", "a JSON object", error) from None

    async def fetch(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        accept: str = "*/*",
        timeout: float = _TIMEOUT_SECONDS,  # noqa: ASYNC109
        max_bytes: int | None = None,
    ) -> RawAnswer:
        """Send one request and return the response, whatever its status and content type.

        It is for callers that read headers, or bodies that are not JSON. Raises Unreachable if
        there is no response, and TooLargeError if its body has more than `max_bytes`, or more than
        the limit of this client.
        """
        async with self._sent(method, path, body, accept=accept, timeout=timeout) as response:
            content = await self._read(response, f"{method} {path}", max_bytes)
        return RawAnswer(response.status, response.headers, content)

    async def pages(
        self,
        path: str,
        accept: str,
        query: Mapping[str, str] | None = None,
        limits: PageLimits = PageLimits(),  # noqa: B008 (it is immutable)
    ) -> AsyncIterator[Page]:
        """Yield the pages of a list. Raises ApiError and Unreachable.

        A page that is too large is requested again with half as many objects. A tenant with many
        namespaces could otherwise make the list of namespaces unreadable. Pages after small ones
        have more objects again: a few large objects must not cost a request for each later one.
        """
        count, token = limits.first_items, ""
        while True:
            parameters = {**(query or {}), "limit": count, **({"continue": token} if token else {})}
            url, max_bytes = f"{path}?{urlencode(parameters)}", limits.max_bytes
            try:
                page = await self.page(
                    url, accept, max_bytes if count > 1 else None, limits.timeout_seconds
                )
            except TooLargeError:
                if count == 1:
                    raise
                count //= 2
                continue
            except ApiError as error:
                if not (limits.continues and error.status == 410 and error.next_page):
                    raise
                token = error.next_page
                continue
            yield page
            token = page.metadata.next
            size = sum(memoryview(each).nbytes for each in page.raw_items or ())
            if size < _SMALL_PAGE_BYTES:
                count = min(2 * count, limits.max_items)
            if not token:
                return

    async def page(
        self,
        path: str,
        accept: str,
        max_bytes: int | None = None,
        timeout: float = _TIMEOUT_SECONDS,  # noqa: ASYNC109
    ) -> Page:
        """Request one page of a list. Raises ApiError, Unreachable and TooLargeError."""
        async with self._sent("GET", path, accept=accept, timeout=timeout) as response:
            content = await self._checked(response, f"GET {path}", max_bytes)
        try:
            return page_of(content, path)
        except DECODE_ERRORS as error:
            raise self._malformed(f"GET {path}", "a list", error) from None

    @asynccontextmanager
    async def watch(
        self, path: str, accept: str, seconds: float, limits: WatchLimits
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Start a watch, and yield an iterator over the lines of the response.

        Each line contains one event. The iterator ends after `seconds`, or when no line arrives for
        `limits.silent_seconds`. Raises ApiError. Raises Unreachable if the connection fails, or if
        the API server does not answer in time, and TooLargeError if a line is too long.
        """
        timeout = aiohttp.ClientTimeout(total=seconds)
        sending = self._sent(
            "GET", path, accept=accept, timeout=timeout, answer_seconds=limits.answer_seconds
        )
        async with sending as response:
            if response.status >= 300:
                await self._checked(response, f"GET {path}")
            yield lines_until_silent(response.content, limits.silent_seconds)

    async def stream(self, path: str, max_silence_seconds: float) -> AsyncGenerator[bytes]:
        """Yield the chunks of a response body when they arrive, so that it can have any length.

        Raises ApiError. Raises Unreachable if the connection fails, if the body is incomplete, or
        if no data arrives for `max_silence_seconds`.
        """
        timeout = aiohttp.ClientTimeout(
            total=None, connect=_TIMEOUT_SECONDS, sock_read=max_silence_seconds
        )
        async with self._sent("GET", path, timeout=timeout) as response:
            if response.status >= 300:
                await self._checked(response, f"GET {path}")
            while chunk := await response.content.readany():
                yield chunk

    async def _read(
        self, response: aiohttp.ClientResponse, request: str, max_bytes: int | None = None
    ) -> bytes:
        """Return the body of a response. Raises TooLargeError."""
        limit = min(max_bytes or self._max_response_bytes, self._max_response_bytes)
        content = bytearray()
        while chunk := await response.content.readany():
            content += chunk
            if len(content) > limit:
                raise self._too_large(request, f"more than {limit} bytes")
        return bytes(content)

    def _too_large(self, request: str, what: str) -> TooLargeError:
        return TooLargeError(f"{request}: the response has {what}; is {self.url} an API server?")

    def _malformed(self, request: str, expected: str, error: Exception) -> Unreachable:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        return Unreachable(
            f"{request}: the response is not {expected}: {why}; is {self.url} an API server?"
        )

    async def _checked(
        self, response: aiohttp.ClientResponse, request: str, max_bytes: int | None = None
    ) -> bytes:
        """Return the body of a response. Raises ApiError if its status is an error.

        Raises Unreachable if another program says that an object is missing or forbidden.
        """
        content = await self._read(response, request, max_bytes)
        if response.status in (403, 404) and not is_of_api_server(content):
            error = f"{response.status}: {status_message(content)}"
            raise Unreachable(
                f"{request}: {error}; the response is no Status; is {self.url} an API server?"
            )
        if response.status >= 300:
            raise ApiError(response.status, status_message(content), token_of(content))
        return content

    @asynccontextmanager
    async def _sent(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "*/*",
        timeout: Any = _TIMEOUT_SECONDS,  # noqa: ASYNC109
        answer_seconds: float | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send one request, and yield the response with its body unread. Raises Unreachable.

        `timeout` is in seconds, or a ClientTimeout. `answer_seconds` limits the time until the
        body begins. The connection of a response of which the block leaves a part unread is
        aborted: aiohttp would end TLS first, and a peer that answers late, or no more, would keep
        the socket open for up to 30 s.

        A request is sent again when the API server asks for it with Retry-After, if that is within
        these limits and _TIMEOUT_SECONDS.
        """
        if not isinstance(timeout, aiohttp.ClientTimeout):
            if self._request_timeout is not None:
                timeout = self._request_timeout.total_seconds() or None
            timeout = aiohttp.ClientTimeout(total=timeout)
        headers = CIMultiDict(self._access.headers)
        headers.extend({"Content-Type": content_type, "Accept": accept, "User-Agent": "podsettle"})
        limits = filter(None, (_TIMEOUT_SECONDS, timeout.total, answer_seconds))
        try:
            # A plugin has a time limit of its own, so those of the request begin after it.
            credential = await self._access.credentials.current()
            began = time.monotonic()
            last_retry = began + min(limits)
            async with asyncio.timeout(answer_seconds):
                send = partial(self._send, method, path, body, headers, timeout, began, credential)
                response = await send()
                while time.monotonic() + (pause := _retry_after(response)) < last_retry:
                    response.release()
                    await asyncio.sleep(pause)
                    response = await send()
            async with response:
                try:
                    yield response
                finally:
                    connection = response.connection
                    if connection is not None and connection.transport is not None:
                        connection.transport.abort()
        except LineTooLong:
            # aiohttp's limit is twice the read buffer of `kubernetes.aio`, so 4 MiB.
            raise self._too_large(f"{method} {path}", "a line that is too long") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unreachable(f"{method} {path}: {describe(error)}") from None
        except AccessError as error:
            raise Unreachable(str(error)) from None

    async def _send(
        self,
        method: str,
        path: str,
        body: Any,
        headers: CIMultiDict[str],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109
        limited_since: float,
        credential: Credential,
    ) -> aiohttp.ClientResponse:
        """Send one request with a credential, and again with a renewed one after a 401.

        `timeout.total` counts from the time `limited_since` on, which is that of the first attempt.
        """
        credentials, url = self._access.credentials, self.url + path
        is_repeated = False
        try:
            while True:
                sent = headers.copy()
                if credential.authorization:
                    sent["Authorization"] = credential.authorization
                client = self._client(credential)
                began = time.monotonic()
                if timeout.total is not None:
                    # aiohttp takes 0 for no limit.
                    rest = max(timeout.total + limited_since - began, 0.001)
                    timeout, limited_since = aiohttp.ClientTimeout(total=rest), began
                wrapper = await client.request(
                    method, url, headers=sent, body=body, _request_timeout=timeout
                )
                response: aiohttp.ClientResponse = wrapper.response
                milliseconds = round((time.monotonic() - began) * 1000)
                log.debug("%s %s %d in %d ms", method, url, response.status, milliseconds)
                now, time_of_server = datetime.now(UTC), server_time(response.headers)
                self.time = time_of_server or self.time
                self.clock_behind = max((time_of_server or now) - now, timedelta(0))
                asked = time.monotonic()
                # kubectl also asks its plugin after a 401, but fails this request.
                if response.status != 401 or is_repeated or not await credentials.renew(credential):
                    return response
                response.release()
                credential = await credentials.current()
                limited_since += time.monotonic() - asked
                is_repeated = True
        except ValueError as error:
            # aiohttp and ssl raise ValueError for names that no server can have.
            raise Unreachable(str(error)) from None

    def _client(self, credential: Credential) -> RestClient:
        """Return a client that trusts the CA file as it is now, and has this certificate.

        client-go reads both again too. Clients that are no longer used keep their watches until
        they end. Raises AccessError and ssl.SSLError if there is no client yet.
        """
        try:
            ca = self._access.ca.read()
            identity = (ca, credential.certificate, credential.key)
            if identity != self._identity:
                self._clients.append(RestClient(self._access, *identity))
                self._identity = identity
        except (AccessError, OSError, ValueError) as error:
            if not self._clients:
                raise
            log.warning("%s: new certificates are not used: %s", self.title, error)
        return self._clients[-1]


def _retry_after(response: aiohttp.ClientResponse) -> float:
    """Return the seconds after which the request has to be sent again. Infinite if never."""
    text = response.headers.get("Retry-After", "")
    # client-go retries after the same statuses, and ignores a date too.
    if (response.status != 429 and response.status < 500) or not _SECONDS.fullmatch(text):
        return math.inf
    return max(int(text), _MIN_PAUSE_SECONDS)
