"""Authorization of clients by TokenReview and SubjectAccessReview, as in Kubernetes' components.

A ClusterRole grants access by `nonResourceURLs`, as for /metrics of the API server itself. The code
follows `apiserver/pkg/authentication/authenticatorfactory/delegating.go` in kubernetes.
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

from webhook.cluster.access import Access, AccessDecision
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, Unreachable

log = logging.getLogger(__name__)

# The default of Kubernetes' delegating authenticator. A revoked grant remains effective this long.
CACHE_TTL_SECONDS = 10.0
MAX_CACHED_DECISIONS = 1024
# A client that sends many invalid tokens must not overload the API server.
_MAX_CONCURRENT_REQUESTS = 8
# Half of the default scrape timeout of Prometheus.
_TIMEOUT_SECONDS = 5.0
# The limit is ample: service account tokens have about 1 KiB.
_MAX_TOKEN_BYTES = 16 * 1024

_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"  # noqa: S105
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class _CachedDecision(NamedTuple):
    decision: AccessDecision
    expires_at: float


class ClusterAuthorizer:
    """An authorizer that sends requests to an API server and caches the decisions.

    The cache contains at most `max_cached` decisions. When it is full, the oldest is removed.
    """

    def __init__(
        self,
        server: ApiServer,
        clock: Callable[[], float] = monotonic,
        max_cached: int = MAX_CACHED_DECISIONS,
    ) -> None:
        self._server = server
        self._clock = clock
        self._max_cached = max_cached
        self._cache: OrderedDict[bytes, _CachedDecision] = OrderedDict()
        # The cache keys are keyed digests. With plain hashes, an attacker with a memory dump
        # could test guessed tokens.
        self._secret = secrets.token_bytes(32)
        self._concurrency = asyncio.Semaphore(_MAX_CONCURRENT_REQUESTS)

    async def authorize(self, token: str, verb: str, path: str) -> AccessDecision:
        """Decide whether the user of a token may send a request with this method to this path.

        `verb` is the HTTP method in lower case. Returns `Access.UNKNOWN` if the API server does not
        answer. This result is not cached.
        """
        if not token or len(token) > _MAX_TOKEN_BYTES or not token.isascii():
            return AccessDecision(Access.UNAUTHENTICATED, "malformed bearer token")
        key = self._cache_key(token, verb, path)
        cached = self._cache.get(key)
        if cached and self._clock() < cached.expires_at:
            return cached.decision
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS), self._concurrency:
                decision = await self._request_decision(token, verb, path)
        except (ApiError, Unreachable, TimeoutError, LookupError) as error:
            reason = str(error) or f"no answer in {_TIMEOUT_SECONDS:g} s"
            log.warning("authorization: cannot authorize %s %s: %s", verb, path, reason)
            return AccessDecision(Access.UNKNOWN, reason)
        self._store(key, decision)
        return decision

    async def _request_decision(self, token: str, verb: str, path: str) -> AccessDecision:
        """Send a TokenReview, and a SubjectAccessReview if the token is valid."""
        # Without `audiences`, the API server accepts only tokens for itself.
        review = await self._review(_TOKEN_REVIEWS, "TokenReview", {"token": token})
        if not review.get("authenticated"):
            return AccessDecision(Access.UNAUTHENTICATED, review.get("error", ""))
        user = review["user"]
        spec = {
            "nonResourceAttributes": {"path": path, "verb": verb},
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups", []),
            "extra": user.get("extra", {}),
        }
        access = await self._review(_ACCESS_REVIEWS, "SubjectAccessReview", spec)
        if access.get("allowed"):
            return AccessDecision(Access.GRANTED)
        return AccessDecision(Access.FORBIDDEN, f"{spec['user']!r} may not {verb} {path}")

    async def _review(self, path: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
        """Create a review object, and return the status that the API server fills in."""
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
        if len(self._cache) > self._max_cached:
            self._cache.popitem(last=False)
