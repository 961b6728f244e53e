"""HTTPS requests to registries and to their token servers.

Every address is checked before podsettle connects to it (`webhook.images.ssrf`). The size of a body
is limited. A proxy resolves the names of registries itself, so podsettle cannot check the addresses
to which the proxy connects.

The author of a pod chooses the host, and reads the error. So each failed connection has the same
error: the cause would show which address a name of the cluster has, and which ports are open. The
cause is in the log, for the operator.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import AsyncResolver
from yarl import URL

from webhook.core.images import LookupRules
from webhook.images.errors import LookupFailedError
from webhook.images.proxy import Proxy
from webhook.images.ssrf import is_forbidden, parse_ip_literal
from webhook.limited_log import LimitedLog

log = logging.getLogger(__name__)

_MAX_CONNECTIONS_PER_HOST = 4
_NO_CONNECTION = "podsettle gets no answer; its log has the cause"
# Authors of pods choose the hosts, so the log lines about them are limited in number.
_MAX_LOG_LINES = 20
_LOG_INTERVAL_SECONDS = 10.0
_FORBIDDEN = "loopback, link-local or metadata address"


class HttpSession:
    """Connections to registries, through the proxy if there is one. The caller must close them."""

    def __init__(
        self, resolver: AbstractResolver | None, context: ssl.SSLContext, timeout_seconds: float
    ) -> None:
        """`timeout_seconds` limits each request, including the download of its body.

        The resolver of the default, c-ares, holds no thread while name servers do not answer.

        Raises ValueError if HTTPS_PROXY is not the URL of an HTTP proxy.
        """
        self._proxy = Proxy.from_environment(os.environ)
        self._resolver = SsrfSafeResolver(
            resolver or AsyncResolver(),
            unchecked_host=self._proxy.url.raw_host if self._proxy is not None else None,
        )
        connector = aiohttp.TCPConnector(
            # The number of look-ups is limited. A limit for all connections together would let the
            # slow hosts of one namespace delay another namespace.
            limit=0,
            limit_per_host=_MAX_CONNECTIONS_PER_HOST,
            ssl=context,
            resolver=self._resolver,
            use_dns_cache=False,  # Its callers would wait for a look-up of one that hangs.
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=timeout_seconds),
            cookie_jar=aiohttp.DummyCookieJar(),
            # A small compressed body can become very large, so the limit must apply to the body as
            # it is used.
            auto_decompress=False,
            headers={"User-Agent": "podsettle", "Accept-Encoding": "identity"},
        )
        self._causes = LimitedLog(log, max_lines=_MAX_LOG_LINES, seconds=_LOG_INTERVAL_SECONDS)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._session.close()
        await self._resolver.close()

    @asynccontextmanager
    async def request(
        self, method: str, url: URL, headers: Mapping[str, str], rules: LookupRules
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send one request and yield its response. Redirects are not followed.

        A forbidden address is allowed if `rules` name it. Raises LookupFailedError for a URL that
        is not allowed and for a request that fails.
        """
        _check_url(url, rules)
        proxy = self._proxy if self._proxy is not None and self._proxy.is_used_for(url) else None
        try:
            async with self._session.request(
                method,
                url,
                headers=headers,
                allow_redirects=False,
                proxy=proxy.url if proxy is not None else None,
                proxy_headers=proxy.headers if proxy is not None else None,
            ) as response:
                yield response
        except (aiohttp.ClientError, OSError, ValueError) as error:
            host = _quoted_host(url)
            self._causes.warning(f"image look-up: {host}: {_describe_cause(error)}")
            raise LookupFailedError(f"{host}: {_text_for_author(error, url)}") from None


class ForbiddenAddressError(OSError):
    """A name that has only forbidden addresses."""


class SsrfSafeResolver(AbstractResolver):
    """A DNS resolver that drops forbidden addresses from its results.

    aiohttp connects to the returned addresses without a second look-up, so a name cannot change
    its address after the check (DNS rebinding).
    """

    def __init__(self, inner: AbstractResolver, unchecked_host: str | None = None) -> None:
        """Create a resolver that uses `inner`.

        `unchecked_host` is the host name of the operator's proxy. Its addresses are not checked.
        """
        self._inner = inner
        self._unchecked_host = unchecked_host

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the allowed addresses of a name. Raises ForbiddenAddressError if there is none."""
        results = await self._inner.resolve(host, port, family)
        if host == self._unchecked_host:
            return results
        allowed = [result for result in results if not is_forbidden(result["host"])]
        if results and not allowed:
            raise ForbiddenAddressError(f"refusing to connect to {host}: {_FORBIDDEN}")
        return allowed

    async def close(self) -> None:
        """Close the inner resolver."""
        await self._inner.close()


async def read_body(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """Return a response's body. Raises LookupFailedError if it exceeds `max_bytes`."""
    if (response.content_length or 0) > max_bytes:
        raise LookupFailedError(f"the registry would send more than {max_bytes} bytes")
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > max_bytes:
            raise LookupFailedError(f"the registry sends more than {max_bytes} bytes")
    return bytes(body)


def _check_url(url: URL, rules: LookupRules) -> None:
    """Raise LookupFailedError for a URL that podsettle must not request."""
    if url.scheme != "https":
        raise LookupFailedError(f"refusing to connect to {_quoted_host(url)} without TLS")
    if url.user is not None or url.password is not None:
        raise LookupFailedError("the registry redirects to a URL that contains credentials")
    try:
        address = parse_ip_literal(url.raw_host or "")
    except ValueError:
        raise LookupFailedError(f"{_quoted_host(url)} is not a host") from None
    is_named = rules.names_exactly(url.host_port_subcomponent or "")
    if address is not None and is_forbidden(address) and not is_named:
        raise LookupFailedError(f"refusing to connect to {_quoted_host(url)}: {_FORBIDDEN}")


def _quoted_host(url: URL) -> str:
    """Return the host of a URL for a message, in quotes and cut after 100 characters."""
    return repr((url.raw_authority or str(url))[:100])


def _text_for_author(error: Exception, url: URL) -> str:
    """Return the text about a failed request that the author of the pod may read."""
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        if isinstance(cause, ForbiddenAddressError):
            return str(cause)
        if error.host != url.raw_host:
            # A negative errno is of the resolver, which `os.strerror` does not know. asyncio's own
            # message of another one has the address.
            known = (cause.errno or 0) > 0 and os.strerror(cause.errno or 0)
            return f"the proxy: {known or cause.strerror or type(cause).__name__}"
    return _NO_CONNECTION


def _describe_cause(error: Exception) -> str:
    """Return the cause of a failed request, without text that the server may have chosen."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy answers {error.status}"
    inner: Exception = error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        inner = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        inner = error.os_error
    if isinstance(inner, ssl.SSLError):
        return f"TLS: {inner.reason or type(inner).__name__}"
    if isinstance(inner, OSError):
        return inner.strerror or str(inner)
    return type(inner).__name__
