"""Who may ask podsettle: TokenReview and SubjectAccessReview, as Kubernetes' own components do.

A ClusterRole grants `nonResourceURLs`, as it does for the /metrics of the API server itself.
After kubernetes `apiserver/pkg/authentication/authenticatorfactory/delegating.go`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from time import monotonic
from typing import Any, NamedTuple

from webhook.cluster.authorizer import Access, AccessDecision
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, Unreachable

log = logging.getLogger(__name__)

CACHE_TTL_SECONDS = 10.0
"""For how long a decision holds, as the delegating authenticator's cache does by default: a grant
that was taken away works for so long."""
MAX_CACHED_DECISIONS = 1024
_MAX_CONCURRENT_REQUESTS = 8
"""Calls under way: whoever sends many wrong tokens is not to load the API server with them."""
_TIMEOUT_SECONDS = 5.0
_MAX_TOKEN_BYTES = 16 * 1024

_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class _CachedDecision(NamedTuple):
    decision: AccessDecision
    until: float


class ClusterAuthorizer:
    """Asks an API server, and remembers what it said for a moment."""

    def __init__(self, server: ApiServer, clock: Callable[[], float] = monotonic) -> None:
        self._server = server
        self._clock = clock
        self._cache: OrderedDict[bytes, _CachedDecision] = OrderedDict()
        # A dump of the memory is not to hold what a token's digest could be compared with.
        self._secret = secrets.token_bytes(32)
        self._concurrency = asyncio.Semaphore(_MAX_CONCURRENT_REQUESTS)

    async def authorize(self, token: str, verb: str, path: str) -> AccessDecision:
        """Whether the bearer of a token may use an HTTP method, in lower case, on a path."""
        if not token or len(token) > _MAX_TOKEN_BYTES or not token.isascii():
            return AccessDecision(Access.UNAUTHENTICATED, "this is no token")
        key = self._cache_key(token, verb, path)
        cached = self._cache.get(key)
        if cached and self._clock() < cached.until:
            return cached.decision
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS), self._concurrency:
                decision = await self._request_decision(token, verb, path)
        except (ApiError, Unreachable, TimeoutError, LookupError) as error:
            log.warning("cannot tell who may %s %s: %s", verb, path, _describe(error))
            return AccessDecision(Access.UNKNOWN, _describe(error))
        self._store(key, decision)
        return decision

    async def _request_decision(self, token: str, verb: str, path: str) -> AccessDecision:
        # No audiences: the API server then takes its own, and tokens for others are not good here.
        found = await self._review(_TOKEN_REVIEWS, "TokenReview", {"token": token})
        if not found.get("authenticated"):
            return AccessDecision(Access.UNAUTHENTICATED, found.get("error", ""))
        user = found["user"]
        spec = {
            "nonResourceAttributes": {"path": path, "verb": verb},
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups", []),
            "extra": user.get("extra", {}),
        }
        judged = await self._review(_ACCESS_REVIEWS, "SubjectAccessReview", spec)
        if judged.get("allowed"):
            return AccessDecision(Access.GRANTED)
        return AccessDecision(Access.FORBIDDEN, f"{spec['user']!r} may not {verb} {path}")

    async def _review(self, path: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
        group = path.split("/")[2]
        body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
        answer = await self._server.request("POST", path, body)
        status: dict[str, Any] = answer["status"]
        return status

    def _cache_key(self, token: str, verb: str, path: str) -> bytes:
        return blake2b(f"{verb} {path} {token}".encode(), key=self._secret).digest()

    def _store(self, key: bytes, decision: AccessDecision) -> None:
        self._cache[key] = _CachedDecision(decision, self._clock() + CACHE_TTL_SECONDS)
        self._cache.move_to_end(key)
        if len(self._cache) > MAX_CACHED_DECISIONS:
            self._cache.popitem(last=False)


def _describe(error: Exception) -> str:
    return str(error) or f"no answer in {_TIMEOUT_SECONDS:g} s"
