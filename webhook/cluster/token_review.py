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

import msgspec

from webhook.cluster.access_decision import Access, AccessDecision
from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, Unreachable
from webhook.cluster.fair_slots import FIRST, FairSlots, NoSlotError
from webhook.cluster.rights import create_review
from webhook.core.types import Json
from webhook.limited_log import LimitedLog
from webhook.single_flight import SingleFlightCache

log = logging.getLogger(__name__)

# The default of Kubernetes' delegating authenticator. A revoked grant remains effective this long.
CACHE_TTL_SECONDS = 10.0
MAX_CACHED_DECISIONS = 1024
# The time for which a token whose access was granted is reviewed before those of other clients.
# Prometheus scrapes more often.
RECENTLY_GRANTED_SECONDS = 300.0
# A client that sends many invalid tokens must not overload the API server. With
# `MIN_SLOT_SECONDS`, these limits are 80 tokens a second, and 40 for each client address.
MAX_REVIEWS = 8
MAX_REVIEWS_PER_CLIENT = 4
# Half of the default scrape timeout of Prometheus.
_TIMEOUT_SECONDS = 5.0
REVIEW_QUEUE_SECONDS = 2.5
# The limit is ample: service account tokens have about 1 KiB.
_MAX_TOKEN_BYTES = 16 * 1024


class _Status(msgspec.Struct):
    """The status of a TokenReview or of a SubjectAccessReview."""

    authenticated: bool = False
    user: Json = {}
    error: str = ""
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status


class ClusterAuthorizer:
    """An authorizer that sends requests to an API server and caches at most `max_cached` decisions.

    A client that sends invalid tokens evicts no decisions of clients that have fewer.
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
        self._granted_at: OrderedDict[bytes, float] = OrderedDict()
        # The cache keys are keyed digests. With plain hashes, an attacker with a memory dump
        # could test guessed tokens.
        self._secret = secrets.token_bytes(32)
        self._decisions: SingleFlightCache[bytes, AccessDecision] = SingleFlightCache(
            lambda each: 0.0 if each.access is Access.UNKNOWN else CACHE_TTL_SECONDS,
            max_entries=max_cached,
            clock=clock,
        )
        self._slots = FairSlots(MAX_REVIEWS, MAX_REVIEWS_PER_CLIENT)
        self._log = LimitedLog(log)

    async def authorize(self, token: str, verb: str, path: str, client: str) -> AccessDecision:
        """Decide whether the user of a token may send a request with this method to this path.

        `verb` is the HTTP method in lower case, and `client` the client's address. Returns
        `Access.UNKNOWN` if the API server does not answer in time, or if the client sends too many
        tokens. This result is not cached.
        """
        if not token or len(token) > _MAX_TOKEN_BYTES or not token.isascii():
            return AccessDecision(Access.UNAUTHENTICATED, "malformed bearer token")
        key = blake2b(f"{verb} {path} {token}".encode(), key=self._secret).digest()
        return await self._decisions.get(
            key, lambda: self._decide(key, token, verb, path, client), client
        )

    async def _decide(
        self, key: bytes, token: str, verb: str, path: str, client: str
    ) -> AccessDecision:
        """Request a decision. If that fails, return `Access.UNKNOWN`."""
        granted_at = self._granted_at.get(key, -RECENTLY_GRANTED_SECONDS)
        is_recent = self._clock() - granted_at < RECENTLY_GRANTED_SECONDS
        queue = FIRST if is_recent else client
        try:
            async with (
                asyncio.timeout(_TIMEOUT_SECONDS),
                self._slots.slot(queue, REVIEW_QUEUE_SECONDS),
            ):
                decision = await self._request_decision(token, verb, path)
        except NoSlotError as error:
            reason = f"too many tokens are checked: {error}"
        except (ApiError, Unreachable, TimeoutError, msgspec.ValidationError) as error:
            reason = str(error) or f"no answer in {_TIMEOUT_SECONDS:g} s"
        else:
            self._granted_at.pop(key, None)
            if decision.access is Access.GRANTED:
                self._granted_at[key] = self._clock()
                if len(self._granted_at) > self._max_cached:
                    self._granted_at.popitem(last=False)
            return decision
        self._log.warning(f"authorization: cannot authorize {verb} {path} for {client}: {reason}")
        return AccessDecision(Access.UNKNOWN, reason)

    async def _request_decision(self, token: str, verb: str, path: str) -> AccessDecision:
        """Send a TokenReview, and a SubjectAccessReview if the token is valid."""
        # Without `audiences`, the API server accepts only tokens for itself.
        review = await self._review("TokenReview", {"token": token})
        if not review.authenticated:
            return AccessDecision(Access.UNAUTHENTICATED, review.error)
        user = review.user
        spec = {
            "nonResourceAttributes": {"path": path, "verb": verb},
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups", []),
            "extra": user.get("extra", {}),
        }
        access = await self._review("SubjectAccessReview", spec)
        if access.allowed:
            return AccessDecision(Access.GRANTED)
        return AccessDecision(Access.FORBIDDEN, f"{spec['user']!r} may not {verb} {path}")

    async def _review(self, kind: str, spec: Json) -> _Status:
        """Return the status of a new review object. Raises msgspec.ValidationError."""
        return msgspec.convert(await create_review(self._server, kind, spec), _Review).status
