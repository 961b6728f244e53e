"""A client for registries, with the requests that read an image's Entrypoint and Cmd.

https://github.com/opencontainers/distribution-spec
"""

from __future__ import annotations

import hashlib
import re
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Self

import aiohttp
import msgspec
from yarl import URL

from webhook.core.image_reference import is_digest
from webhook.dns_resolver import Resolver
from webhook.images.errors import LookupFailedError, RefusedError
from webhook.images.http_session import HttpSession, read_body
from webhook.images.image_manifest import ACCEPT, MAX_DOCUMENT_BYTES
from webhook.images.keyring import Credential
from webhook.images.registry import Registry
from webhook.images.www_authenticate import Challenge, parse_challenges

# Real answers have a few kilobytes. Larger ones would block the event loop, which decodes them.
_MAX_TOKEN_BYTES = 64 * 1024
_MAX_REDIRECTS = 3
_TOKEN = re.compile(r"[\x21-\x7e]+", re.ASCII)


class _TokenAnswer(msgspec.Struct):
    token: str = ""
    access_token: str = ""


_decode_token = msgspec.json.Decoder(_TokenAnswer).decode


class RegistryClient:
    """Connections to registries. The caller must close them, for example by `async with`."""

    def __init__(
        self,
        resolver: Resolver,
        context: ssl.SSLContext,
        *,
        request_timeout_seconds: float,
    ) -> None:
        """Open the session. Raises ValueError if HTTPS_PROXY is not the URL of an HTTP proxy."""
        self._session = HttpSession(resolver, context, request_timeout_seconds)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._session.aclose()

    def repository(
        self, registry: Registry, credential: Credential | None, owner: str
    ) -> RepositoryClient:
        """Return a client for one repository.

        Its DNS look-ups count against the limit of `owner`, the namespace of the pod.
        """
        return RepositoryClient(self._session, registry, credential, owner)


class RepositoryClient:
    """A client for one repository, with one credential or none. It authenticates once.

    Every method raises LookupFailedError, or its subclass RefusedError if another credential may
    succeed. It raises TooManyError if the owner's limit of DNS look-ups is reached.
    """

    def __init__(
        self,
        session: HttpSession,
        registry: Registry,
        credential: Credential | None,
        owner: str,
    ) -> None:
        self._session = session
        self._registry = registry
        self._credential = credential
        self._owner = owner
        self._authorization: str | None = None
        self._base = _url(f"https://{registry.host}/v2/{registry.repository}/")

    async def digest(self, tag: str) -> str:
        """Return the digest that a tag points to now."""
        url = self._base / "manifests" / tag
        async with self._request_authorized("HEAD", url, ACCEPT) as response:
            digest = response.headers.get("Docker-Content-Digest", "")
        if is_digest(digest):
            return digest
        # Some registries omit the header. Compute the digest from the manifest.
        async with self._request_authorized("GET", url, ACCEPT) as response:
            return _digest_of(await read_body(response, MAX_DOCUMENT_BYTES), "sha256")

    async def manifest(self, digest: str) -> bytes:
        """Return a manifest or an index. Its digest is verified."""
        return await self._verified_content(self._base / "manifests" / digest, digest, ACCEPT)

    async def blob(self, digest: str) -> bytes:
        """Return a blob, such as an image's configuration. Its digest is verified."""
        return await self._verified_content(self._base / "blobs" / digest, digest, "*/*")

    async def _verified_content(self, url: URL, digest: str, accept: str) -> bytes:
        """Return the content at a URL. Raise LookupFailedError if its digest differs."""
        if not is_digest(digest):
            raise LookupFailedError("the registry named a digest that cannot be verified")
        async with self._request_authorized("GET", url, accept) as response:
            body = await read_body(response, MAX_DOCUMENT_BYTES)
        if _digest_of(body, digest.partition(":")[0]) != digest:
            raise LookupFailedError("the registry sent content that does not match its digest")
        return body

    @asynccontextmanager
    async def _request_authorized(
        self, method: str, url: URL, accept: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield a response with status 200. After a 401, authenticate and retry once."""
        async with self._follow_redirects(method, url, accept) as response:
            if response.status == 200:
                yield response
                return
            status, headers = response.status, response.headers.getall("WWW-Authenticate", [])
            same_origin = response.url.origin() == url.origin()
        if status == 401 and same_origin and self._authorization is None:
            self._authorization = await self._authorize(parse_challenges(headers))
            async with self._follow_redirects(method, url, accept) as response:
                status = response.status
                if status == 200:
                    yield response
                    return
        raise RefusedError(f"the registry answers {status}")

    @asynccontextmanager
    async def _follow_redirects(
        self, method: str, url: URL, accept: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Follow a few redirects and yield the last response.

        Other origins do not get the credential.
        """
        origin = url.origin()
        for _ in range(_MAX_REDIRECTS + 1):
            headers = {"Accept": accept}
            if self._authorization is not None and url.origin() == origin:
                headers["Authorization"] = self._authorization
            async with self._request(method, url, headers) as response:
                location = response.headers.get("Location")
                if response.status not in (301, 302, 303, 307, 308) or not location:
                    yield response
                    return
            try:
                url = url.join(_url(location))
            except ValueError:
                raise LookupFailedError("the registry redirects to an invalid URL") from None
        raise LookupFailedError(f"the registry redirects more than {_MAX_REDIRECTS} times")

    def _request(
        self, method: str, url: URL, headers: Mapping[str, str]
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        return self._session.request(method, url, headers, self._registry.rules, self._owner)

    async def _authorize(self, challenges: tuple[Challenge, ...]) -> str:
        """Return the Authorization header for the first challenge with a usable scheme.

        Raises RefusedError if there is no such challenge.
        """
        for scheme, parameters in challenges:
            if scheme == "bearer":
                return f"Bearer {await self._request_token(parameters)}"
        if self._credential is not None and any(c.scheme == "basic" for c in challenges):
            return _basic_authorization(self._credential)
        raise RefusedError("the registry answers 401")

    async def _request_token(self, parameters: Mapping[str, str]) -> str:
        """Request a token from the token server that a challenge names, and return it."""
        try:
            realm = _url(parameters.get("realm", ""))
        except ValueError:
            raise LookupFailedError("the registry names an invalid URL as token server") from None
        query = {
            "service": parameters.get("service", ""),
            "scope": parameters.get("scope") or f"repository:{self._registry.repository}:pull",
        }
        headers = {"Accept": "application/json"}
        if self._credential is not None:
            headers["Authorization"] = _basic_authorization(self._credential)
        url = realm.update_query({key: value for key, value in query.items() if value})
        async with self._request("GET", url, headers) as response:
            if response.status != 200:
                raise RefusedError(f"the registry's token server answers {response.status}")
            body = await read_body(response, _MAX_TOKEN_BYTES)
        try:
            answer = _decode_token(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise LookupFailedError("the registry's token server sends no token") from None
        token = answer.token or answer.access_token
        if not _TOKEN.fullmatch(token):
            raise LookupFailedError("the registry's token server sends no token")
        return token


def _basic_authorization(credential: Credential) -> str:
    """Return the Authorization header for Basic authentication (RFC 7617), in UTF-8."""
    pair = f"{credential.username}:{credential.password}".encode()
    return f"Basic {b64encode(pair).decode()}"


def _digest_of(body: bytes, algorithm: str) -> str:
    return f"{algorithm}:{hashlib.new(algorithm, body).hexdigest()}"


def _url(text: str) -> URL:
    """Return the URL. Raises ValueError if the text is empty or not a URL."""
    if not text:
        raise ValueError("no URL")
    return URL(text)
