"""A client for registries, with the requests that read an image's Entrypoint and Cmd.

https://github.com/opencontainers/distribution-spec
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeAlias
from urllib.parse import urlsplit

import aiohttp
import msgspec
from yarl import URL

from webhook.core.image_reference import is_digest
from webhook.images.errors import LookupFailedError, RefusedError
from webhook.images.go_json import with_usual_names
from webhook.images.http_session import HttpSession, read_body
from webhook.images.image_manifest import ACCEPT, MAX_DOCUMENT_BYTES
from webhook.images.keyring import Credential
from webhook.images.registry import Registry
from webhook.images.www_authenticate import Challenge, parse_challenges

# Real answers have a few kilobytes. Larger ones would block the event loop, which decodes them.
_MAX_TOKEN_BYTES = 64 * 1024
_REDIRECTS = (301, 302, 303, 307, 308)
_MAX_REDIRECTS = 3
_VISIBLE = re.compile(r"[\x21-\x7e]+", re.ASCII)

_Origin: TypeAlias = tuple[str, str | None, int | None]


class _TokenAnswer(msgspec.Struct):
    token: str | None = None
    access_token: str | None = None


_decode_token = msgspec.json.Decoder(_TokenAnswer).decode


class RepositoryClient:
    """A client for one repository, with one credential or none. It authenticates once per origin.

    Every method raises LookupFailedError, or its subclass RefusedError if another credential may
    succeed.
    """

    def __init__(
        self, session: HttpSession, registry: Registry, credential: Credential | None
    ) -> None:
        self._request = partial(session.request, rules=registry.rules)
        self._registry = registry
        self._credential = credential
        self._authorizations: dict[_Origin, str] = {}
        """The Authorization headers, by the origin that gets them."""
        self._base = URL(f"https://{registry.host}/v2/{registry.repository}/")

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
        """Yield a response with status 200. Follow a few redirects, and authenticate after a 401.

        A redirect can lead to another registry with a token server of its own. The credential is
        for the registry of the image alone, so the other one gets a token without it.
        """
        redirect_count = 0
        while True:  # Each round follows a redirect, or sends an origin its first authorization.
            origin = _origin(url)
            authorization = self._authorizations.get(origin)
            headers = {"Accept": accept}
            if authorization is not None:
                headers["Authorization"] = authorization
            async with self._request(method, url, headers) as response:
                if response.status == 200:
                    yield response
                    return
                status, location = response.status, response.headers.get("Location")
                challenges = response.headers.getall("WWW-Authenticate", [])
            if status == 401 and authorization is None:
                # A concurrent request may have authenticated in the meantime.
                if origin not in self._authorizations:
                    credential = self._credential if origin == _origin(self._base) else None
                    self._authorizations[origin] = await self._authorize(
                        parse_challenges(challenges), credential
                    )
            elif status in _REDIRECTS and location:
                redirect_count += 1
                if redirect_count > _MAX_REDIRECTS:
                    raise LookupFailedError(
                        f"the registry redirects more than {_MAX_REDIRECTS} times"
                    )
                url = _redirected(url, location)
            elif status == 405 and method == "HEAD":
                method = "GET"  # As containerd does (core/remotes/docker `retryRequest`).
            else:
                raise RefusedError(f"the registry answers {status}")

    async def _authorize(
        self, challenges: tuple[Challenge, ...], credential: Credential | None
    ) -> str:
        """Return the Authorization header for the first challenge with a usable scheme.

        Raises RefusedError if there is no such challenge.
        """
        for scheme, parameters in challenges:
            if scheme == "bearer":
                return f"Bearer {await self._request_token(parameters, credential)}"
        if credential is not None and any(c.scheme == "basic" for c in challenges):
            return credential.authorization
        raise RefusedError("the registry answers 401")

    async def _request_token(
        self, parameters: Mapping[str, str], credential: Credential | None
    ) -> str:
        """Request a token from the token server that a challenge names, and return it.

        Like containerd, follow a few redirects. The credential is for the named server alone.
        """
        try:
            realm = URL(parameters["realm"])
        except (KeyError, ValueError):
            raise LookupFailedError("the registry names an invalid URL as token server") from None
        query = {
            "service": parameters.get("service", ""),
            "scope": parameters.get("scope") or f"repository:{self._registry.repository}:pull",
        }
        headers = {"Accept": "application/json"}
        if credential is not None:
            headers["Authorization"] = credential.authorization
        url = realm.update_query({key: value for key, value in query.items() if value})
        for _ in range(_MAX_REDIRECTS + 1):
            async with self._request("GET", url, headers) as response:
                location = response.headers.get("Location")
                if response.status not in _REDIRECTS or not location:
                    if response.status != 200:
                        raise RefusedError(f"the registry's token server answers {response.status}")
                    body = await read_body(response, _MAX_TOKEN_BYTES)
                    break
            redirected = _redirected(url, location)
            if _origin(redirected) != _origin(url):
                headers.pop("Authorization", None)
            url = redirected
        else:
            message = f"the registry's token server redirects more than {_MAX_REDIRECTS} times"
            raise LookupFailedError(message)
        try:
            answer = _decode_token(with_usual_names(body))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise LookupFailedError("the registry's token server sends no token") from None
        token = answer.token or answer.access_token or ""
        if not _VISIBLE.fullmatch(token):
            raise LookupFailedError("the registry's token server sends no token")
        return token


def _redirected(url: URL, location: str) -> URL:
    """Return the URL to which `url` redirects. Raises LookupFailedError."""
    try:
        target, given = url.join(URL(location)), urlsplit(location)
        if not _VISIBLE.fullmatch(location):
            return target
        # A signature can cover the path and the query as they are written, as CloudFront's does.
        # yarl would decode characters that need no escape there.
        return URL.build(
            scheme=target.scheme,
            authority=target.raw_authority,
            path=given.path if given.path.startswith("/") else target.raw_path,
            query_string=given.query,
            encoded=True,
        )
    except ValueError:
        raise LookupFailedError("the registry redirects to an invalid URL") from None


def _origin(url: URL) -> _Origin:
    """Return the origin of a URL. `URL.origin` raises an error for a URL without a host."""
    return url.scheme, url.raw_host, url.port


def _digest_of(body: bytes, algorithm: str) -> str:
    return f"{algorithm}:{hashlib.new(algorithm, body).hexdigest()}"
