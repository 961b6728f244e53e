"""A client of registries: https://github.com/opencontainers/distribution-spec, and no more of it
than an image's configuration takes.

On aiohttp, which `kubernetes` brings and a replica in a cluster has loaded anyway; nothing imports
this module before the first look-up. Everything that a registry sends is bounded, and every
address that it sends podsettle to is checked (`webhook.images.ssrf`). Names that a proxy looks
up are the proxy's to check.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Self

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from webhook.aiohttp_resolver import ThreadResolver
from webhook.dns_resolver import LookupLimitError, Resolver
from webhook.images import www_authenticate as challenge
from webhook.images.cache import TooManyError
from webhook.images.errors import LookupFailedError, RefusedError
from webhook.images.keyring import Credential
from webhook.images.manifest import ACCEPT, MOST_BYTES
from webhook.images.proxy import Proxy
from webhook.images.reference import Registry, is_digest
from webhook.images.ssrf import is_refused, literal
from webhook.tls_verification import client_context

_MOST_TOKEN_BYTES = 64 * 1024
_MOST_REDIRECTS = 3
_CONNECTIONS = 256
"""More than the look-ups of several namespaces can take. A connection counts from before its name
is looked up, so names that hang hold connections, too."""
_PER_REGISTRY = 4
_LONGEST_REQUEST = 10.0
"""Seconds, until all of the answer is there."""
_TOKEN = re.compile(r"[\x21-\x7e]+", re.ASCII)

_owner: ContextVar[str] = ContextVar("owner", default="")
"""The owner of the request that a name is looked up for. An aiohttp resolver gets the name alone,
and is called in the context of the request."""


class _Token(msgspec.Struct):
    token: str = ""
    access_token: str = ""


_decode_token = msgspec.json.Decoder(_Token).decode


class RegistryClient:
    """Connections to registries. The caller closes it, by `async with`."""

    def __init__(self, resolver: Resolver, *, context: ssl.SSLContext | None = None) -> None:
        """Raises ValueError where HTTPS_PROXY is not the URL of an HTTP proxy."""
        self._proxy = Proxy.from_environment(os.environ)
        connector = aiohttp.TCPConnector(
            limit=_CONNECTIONS,
            limit_per_host=_PER_REGISTRY,
            ssl=context or client_context(),
            resolver=_CheckingResolver(
                ThreadResolver(resolver, _owner.get),
                unchecked=self._proxy.url.raw_host if self._proxy is not None else None,
            ),
            # aiohttp's cache would share also an owner's refused look-up with other owners.
            use_dns_cache=False,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=_LONGEST_REQUEST),
            cookie_jar=aiohttp.DummyCookieJar(),
            # What is read is bounded, so it must not grow after it was read.
            auto_decompress=False,
            headers={"User-Agent": "podsettle", "Accept-Encoding": "identity"},
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close what is open."""
        await self._session.close()

    def visit(self, registry: Registry, credential: Credential | None, owner: str) -> Visit:
        """A repository, seen with one credential or with none, at the cost of `owner`'s shares."""
        return Visit(self._session, self._proxy, registry, credential, owner)


class Visit:
    """One repository seen with one credential: what it takes to be let in is found out once.

    Every method raises LookupFailedError: RefusedError where another credential may be let in.
    TooManyError says that the owner's share of name look-ups is used up.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        proxy: Proxy | None,
        registry: Registry,
        credential: Credential | None,
        owner: str,
    ) -> None:
        self._session = session
        self._proxy = proxy
        self._registry = registry
        self._credential = credential
        self._owner = owner
        self._authorization: str | None = None
        self._base = _url(f"https://{registry.host}/v2/{registry.repository}/")

    async def digest(self, tag: str) -> str:
        """The digest of what a tag stands for now."""
        url = self._base / "manifests" / tag
        async with self._answer("HEAD", url, ACCEPT) as response:
            stated = response.headers.get("Docker-Content-Digest", "")
        if is_digest(stated):
            return stated
        # Some registries do not say; then what they send does.
        async with self._answer("GET", url, ACCEPT) as response:
            return _digest_of(await _read(response, MOST_BYTES), "sha256")

    async def manifest(self, digest: str) -> bytes:
        """A manifest or an index."""
        return await self._content(self._base / "manifests" / digest, digest, ACCEPT)

    async def blob(self, digest: str) -> bytes:
        """A blob, such as an image's configuration."""
        return await self._content(self._base / "blobs" / digest, digest, "*/*")

    async def _content(self, url: URL, digest: str, accept: str) -> bytes:
        if not is_digest(digest):
            raise LookupFailedError("the registry named a digest that cannot be verified")
        async with self._answer("GET", url, accept) as response:
            body = await _read(response, MOST_BYTES)
        if _digest_of(body, digest.partition(":")[0]) != digest:
            raise LookupFailedError("the registry sent something else than the digest says")
        return body

    @asynccontextmanager
    async def _answer(
        self, method: str, url: URL, accept: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The registry's answer, once it lets us in."""
        async with self._follow(method, url, accept) as response:
            if response.status == 200:
                yield response
                return
            status, asked = response.status, response.headers.getall("WWW-Authenticate", [])
            at_home = response.url.origin() == url.origin()
        if status == 401 and at_home and self._authorization is None:
            self._authorization = await self._authorize(challenge.parse(asked))
            async with self._follow(method, url, accept) as response:
                status = response.status
                if status == 200:
                    yield response
                    return
        raise RefusedError(f"the registry answers {status}")

    @asynccontextmanager
    async def _follow(
        self, method: str, url: URL, accept: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer behind at most a few redirects; other hosts do not get the credential."""
        home = url.origin()
        for _ in range(_MOST_REDIRECTS + 1):
            headers = {"Accept": accept}
            if self._authorization is not None and url.origin() == home:
                headers["Authorization"] = self._authorization
            async with self._send(method, url, headers) as response:
                location = response.headers.get("Location")
                if response.status not in (301, 302, 303, 307, 308) or not location:
                    yield response
                    return
            try:
                url = url.join(_url(location))
            except ValueError:
                raise LookupFailedError("the registry redirects to what is no URL") from None
        raise LookupFailedError(f"the registry redirects more than {_MOST_REDIRECTS} times")

    async def _authorize(self, challenges: tuple[challenge.Challenge, ...]) -> str:
        """The value of the header that answers a challenge. Raises RefusedError."""
        for scheme, parameters in challenges:
            if scheme == "bearer":
                return f"Bearer {await self._token(parameters)}"
        if self._credential is not None and any(c.scheme == "basic" for c in challenges):
            return _basic(self._credential)
        raise RefusedError("the registry answers 401")

    async def _token(self, parameters: Mapping[str, str]) -> str:
        """A token from the server that the registry names."""
        try:
            realm = _url(parameters.get("realm", ""))
        except ValueError:
            raise LookupFailedError("the registry names no token server that is a URL") from None
        query = {
            "service": parameters.get("service", ""),
            "scope": parameters.get("scope") or f"repository:{self._registry.repository}:pull",
        }
        headers = {"Accept": "application/json"}
        if self._credential is not None:
            headers["Authorization"] = _basic(self._credential)
        url = realm.update_query({key: value for key, value in query.items() if value})
        async with self._send("GET", url, headers) as response:
            if response.status != 200:
                raise RefusedError(f"the registry's token server answers {response.status}")
            body = await _read(response, _MOST_TOKEN_BYTES)
        try:
            answer = _decode_token(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise LookupFailedError("the registry's token server sends no token") from None
        token = answer.token or answer.access_token
        if not _TOKEN.fullmatch(token):
            raise LookupFailedError("the registry's token server sends no token")
        return token

    @asynccontextmanager
    async def _send(
        self, method: str, url: URL, headers: Mapping[str, str]
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One request to an address that was checked. Raises LookupFailedError and TooManyError."""
        self._check(url)
        proxy = self._proxy if self._proxy is not None and self._proxy.is_for(url) else None
        _owner.set(self._owner)
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
            if isinstance(error, aiohttp.ClientConnectorError) and isinstance(
                error.os_error, LookupLimitError
            ):
                raise TooManyError(str(error.os_error)) from None
            raise LookupFailedError(_words(error, url)) from None

    def _check(self, url: URL) -> None:
        """Raise LookupFailedError for a URL that must not be asked."""
        if url.scheme != "https":
            raise LookupFailedError(f"{_host(url)} would have to be asked without TLS")
        if url.user is not None or url.password is not None:
            raise LookupFailedError("the registry redirects to a URL with credentials in it")
        try:
            address = literal(url.raw_host or "")
        except ValueError:
            raise LookupFailedError(f"{_host(url)} is not a host") from None
        meant = self._registry.rules.names(url.host_port_subcomponent or "")
        if address is not None and is_refused(address) and not meant:
            raise LookupFailedError(f"{_host(url)} is an address that is never asked")


class _CheckingResolver(AbstractResolver):
    """Looks names up, and leaves out the addresses that are never asked.

    What is left is what is connected to: a name cannot stand for another address a moment later.
    """

    def __init__(self, inner: AbstractResolver, unchecked: str | None = None) -> None:
        """`unchecked` is the proxy's name: the operator chose it, no image did."""
        self._inner = inner
        self._unchecked = unchecked

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a name."""
        found = await self._inner.resolve(host, port, family)
        if host == self._unchecked:
            return found
        allowed = [result for result in found if not is_refused(result["host"])]
        if found and not allowed:
            raise OSError(f"{host} has an address that is never asked")
        return allowed

    async def close(self) -> None:
        """Close what is open."""
        await self._inner.close()


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes:
    """The body. Raises LookupFailedError for one that is too long, without reading it."""
    if (response.content_length or 0) > most:
        raise LookupFailedError(f"the registry would send more than the {most} bytes it reads")
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > most:
            raise LookupFailedError(f"the registry sends more than the {most} bytes it reads")
    return bytes(body)


def _basic(credential: Credential) -> str:
    """RFC 7617, in UTF-8."""
    pair = f"{credential.username}:{credential.password}".encode()
    return f"Basic {b64encode(pair).decode()}"


def _digest_of(body: bytes, algorithm: str) -> str:
    return f"{algorithm}:{hashlib.new(algorithm, body).hexdigest()}"


def _url(text: str) -> URL:
    """Raises ValueError."""
    if not text:
        raise ValueError("no URL")
    return URL(text)


def _host(url: URL) -> str:
    return repr((url.raw_authority or str(url))[:100])


def _words(error: Exception, url: URL) -> str:
    """What went wrong on the way, without what the server may have put into it."""
    if isinstance(error, TimeoutError):
        return f"{_host(url)} did not answer in time"
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"{_host(url)}: the proxy answers {error.status}"
    if isinstance(error, aiohttp.ClientConnectorError) and error.host != url.raw_host:
        cause = error.os_error
        # Without the address, which asyncio's own words hold; negative numbers are the resolver's.
        known = (cause.errno or 0) > 0
        why = os.strerror(cause.errno or 0) if known else cause.strerror or type(cause).__name__
        return f"{_host(url)}: the proxy: {why}"
    inner = error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        inner = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        inner = error.os_error
    if isinstance(inner, ssl.SSLError):
        return f"{_host(url)}: TLS: {inner.reason or type(inner).__name__}"
    if isinstance(inner, OSError):
        return f"{_host(url)}: {inner.strerror or inner}"
    return f"{_host(url)}: {type(inner).__name__}"
