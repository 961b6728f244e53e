"""Looks up the Entrypoint and Cmd of images that a decision queries.

Results are cached in two steps. The digest of a tag is cached for a minute. After that, one HEAD
request reads it again. The configuration of a digest never changes. Both cache keys contain the
credentials, so a namespace gets no cached result about an image that it may not pull.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import ssl
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from webhook.client_tls_context import client_context
from webhook.core.image_reference import Reference, parse_reference
from webhook.core.images import MAX_IMAGES_PER_POD, ImageConfig, ImageQuery, Unavailable
from webhook.core.pull_secrets import PullSecrets
from webhook.images.errors import LookupFailedError
from webhook.images.fetch import CredentialTrials, fetch_config
from webhook.images.keyring import Credential, Keyring, read_keyring
from webhook.images.registry import Registry, registry_of
from webhook.single_flight import SingleFlightCache, TooManyError, bytes_of

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver

    from webhook.images.client import RepositoryClient
    from webhook.images.http_session import HttpSession

log = logging.getLogger(__name__)

T = TypeVar("T")
LookupTask = asyncio.Task[ImageConfig | Unavailable]

# Real values have a few hundred bytes, hostile ones up to 1 MiB, and ten times that as objects.
MAX_CACHED_BYTES = 16 * 1024 * 1024
# Beyond this number, a namespace has one look-up at a time.
_MAX_CONCURRENT = 64
_MAX_CONCURRENT_PER_NAMESPACE = 12  # one tenant's slow registries leave look-ups for others
_MAX_DETACHED = 256  # look-ups that continue after their caller's timeout
_MAX_REPORTED_SECRET_PROBLEMS = 3


@dataclass(frozen=True, slots=True)
class LookupLimits:
    """The timeouts and the cache limits of image look-ups. All times are in seconds."""

    tag_ttl: float = 60.0
    failure_ttl: float = 30.0
    keyring_ttl: float = 30.0
    broken_keyring_ttl: float = 5.0
    """For the keyring of a pod whose pull secrets have problems."""
    step_timeout: float = 10.0
    """For resolving a tag, and for fetching a configuration, with all credentials together. It is
    longer than a pod waits, because the result is cached for the next pod."""
    request_timeout: float = 10.0
    """For each HTTP request, including the download of its body."""
    max_cache_entries: int = 2000


class ImageLookup:
    """Looks up the images of a cluster's pods. The caller must close it."""

    def __init__(
        self,
        pull_secrets: PullSecrets | None = None,
        *,
        count: Callable[[bool], None] = lambda _found: None,
        resolver: AbstractResolver | None = None,
        new_context: Callable[[], ssl.SSLContext] = client_context,
        clock: Callable[[], float] = monotonic,
        limits: LookupLimits = LookupLimits(),
    ) -> None:
        """Send no credentials to registries if `pull_secrets` is None.

        `count` is called after each step that sends requests to a registry, with True if the step
        succeeded. One step resolves a tag, the other fetches a configuration. Cached results are
        not counted. `resolver` resolves the registries' names. `new_context` is called once, in a
        thread, and returns the context that verifies TLS certificates; that of the default trusts
        the system's CAs.
        """
        self._resolver = resolver
        self._pull_secrets = pull_secrets
        self._new_context = new_context
        self._limits = limits
        self._session: HttpSession | None = None
        self._new_client: Callable[[Registry, Credential | None], RepositoryClient] | None = None
        self._opening = asyncio.Lock()
        self._count = count
        self._fingerprint_key = secrets.token_bytes(16)

        self.cache: SingleFlightCache[tuple[object, ...], Any] = SingleFlightCache(
            self._ttl,
            max_entries=limits.max_cache_entries,
            size_of=lambda found: found.bytes if isinstance(found, Keyring) else bytes_of(found),
            max_bytes=MAX_CACHED_BYTES,
            max_in_flight=_MAX_CONCURRENT,
            max_per_owner=_MAX_CONCURRENT_PER_NAMESPACE,
            clock=clock,
        )
        """The keyrings of pods, the digests of tags and the configurations of digests."""
        self.detached: set[LookupTask] = set()
        """Look-ups that continue after their caller's timeout."""

    async def find(
        self,
        queries: Iterable[ImageQuery],
        seconds: float,
        *,
        max_images: int | None = MAX_IMAGES_PER_POD,
    ) -> dict[ImageQuery, ImageConfig | Unavailable]:
        """Return a result for every query within `seconds`. This method raises no error.

        Only the first `max_images` are looked up, or all of them if it is None.
        """
        distinct = tuple(dict.fromkeys(queries))
        if not distinct:
            return {}
        semaphore = asyncio.Semaphore(MAX_IMAGES_PER_POD)
        first = distinct[:max_images]
        tasks = {query: asyncio.create_task(self._find_safely(query, semaphore)) for query in first}
        late = Unavailable(f"the registry did not answer within {seconds:.2g} s")
        try:
            await asyncio.wait(tasks.values(), timeout=seconds)
            results = {
                # `aclose` cancels the fetches that look-ups share.
                query: task.result() if task.done() and not task.cancelled() else late
                for query, task in tasks.items()
            }
        finally:
            # Unfinished look-ups continue, so that their results are cached for the next pod.
            for task in tasks.values():
                if not task.done() and len(self.detached) < _MAX_DETACHED:
                    self.detached.add(task)
                    task.add_done_callback(self.detached.discard)
                else:
                    task.cancel()
        too_many = Unavailable(f"no more than {max_images} images of a pod are looked up")
        return results | dict.fromkeys(distinct[len(first) :], too_many)

    async def aclose(self) -> None:
        """Cancel all look-ups and close all connections."""
        detached = tuple(self.detached)
        for task in detached:
            task.cancel()
        await asyncio.gather(*detached, return_exceptions=True)
        await self.cache.aclose()
        if self._session is not None:
            await self._session.aclose()

    async def _find_safely(
        self, query: ImageQuery, semaphore: asyncio.Semaphore
    ) -> ImageConfig | Unavailable:
        try:
            async with semaphore:
                return await self._find_one(query)
        except Exception as error:
            log.exception("image look-up: internal error")
            return Unavailable(f"internal error: {type(error).__name__}")

    async def _find_one(self, query: ImageQuery) -> ImageConfig | Unavailable:
        try:
            reference = parse_reference(query.image)
            registry = registry_of(reference, query.rules)
        except (ValueError, LookupFailedError) as error:
            return Unavailable(str(error))
        try:
            keyring = await self._keyring(query)
            credentials: tuple[Credential, ...] = ()
            if keyring.entries:
                credentials = await asyncio.to_thread(keyring.matching, registry.name)
            trials = CredentialTrials(
                await self._client_factory(), registry, credentials, self._limits.step_timeout
            )
            found = await self._fetch(trials, reference, query)
        except (ValueError, TooManyError) as error:
            return Unavailable(f"{reference}: {error}")
        if isinstance(found, Unavailable):
            reasons = [
                f"{reference}: {found.why}",
                *keyring.problems[:_MAX_REPORTED_SECRET_PROBLEMS],
            ]
            if (more := len(keyring.problems) - _MAX_REPORTED_SECRET_PROBLEMS) > 0:
                reasons.append(f"and {more} more problems with pull secrets")
            return Unavailable("; ".join(reasons))
        return found

    async def _fetch(
        self, trials: CredentialTrials, reference: Reference, query: ImageQuery
    ) -> ImageConfig | Unavailable:
        """Resolve the tag and fetch the configuration, each from its cache if possible."""
        architectures, owner = query.architectures, _owner(query)
        key = (trials.registry, self._fingerprint(trials.credentials))
        digest: str | Unavailable = reference.digest
        if not digest:
            digest = await self.cache.get(
                (*key, reference.tag),
                lambda: self._counted(trials.run(lambda client: client.digest(reference.tag))),
                owner,
            )
        if isinstance(digest, Unavailable):
            return digest
        config: ImageConfig | Unavailable = await self.cache.get(
            (*key, digest, architectures),
            lambda: self._counted(
                trials.run(lambda client: fetch_config(client, digest, architectures))
            ),
            owner,
        )
        return config

    async def _counted(self, step: Awaitable[T | Unavailable]) -> T | Unavailable:
        found = await step
        self._count(not isinstance(found, Unavailable))
        return found

    async def _keyring(self, query: ImageQuery) -> Keyring:
        reader = self._pull_secrets
        if reader is None or not query.namespace:
            return Keyring()
        key = (query.namespace, query.pull_secrets, query.service_account)

        async def read() -> Keyring:
            # Parse in a thread, because tenants write the secrets, up to 1 MiB for one pod.
            return await asyncio.to_thread(read_keyring, await reader.read(*key))

        keyring: Keyring = await self.cache.get(key, read, _owner(query))
        return keyring

    async def _client_factory(self) -> Callable[[Registry, Credential | None], RepositoryClient]:
        """Return what makes clients of repositories. The first look-up opens their session."""
        async with self._opening:
            if self._new_client is None:
                client, session, context = await asyncio.to_thread(_load, self._new_context)
                self._session = session(self._resolver, context, self._limits.request_timeout)
                self._new_client = partial(client, self._session)
            return self._new_client

    def _fingerprint(self, credentials: tuple[Credential, ...]) -> bytes:
        """Return a keyed hash, so that the caches do not keep passwords."""
        digest = hashlib.blake2b(key=self._fingerprint_key)
        for text in (text for credential in credentials for text in credential):
            encoded = text.encode("utf-8", "surrogatepass")
            digest.update(len(encoded).to_bytes(8, "big") + encoded)
        return digest.digest()

    def _ttl(self, found: object) -> float:
        limits = self._limits
        if isinstance(found, Keyring):
            return limits.broken_keyring_ttl if found.problems else limits.keyring_ttl
        if isinstance(found, Unavailable):
            return limits.failure_ttl
        return inf if isinstance(found, ImageConfig) else limits.tag_ttl


def _load(
    new_context: Callable[[], ssl.SSLContext],
) -> tuple[type[RepositoryClient], type[HttpSession], ssl.SSLContext]:
    """Return the classes of clients and of their session, and a new TLS context.

    Call this in a thread: reading the system's CAs takes 40 ms. A server without a cluster also
    imports aiohttp here, which takes 0.1 to 0.4 s and 9 MiB, because few policies look images up.
    """
    from webhook.images.client import RepositoryClient
    from webhook.images.http_session import HttpSession

    return RepositoryClient, HttpSession, new_context()


def _owner(query: ImageQuery) -> str:
    """Return the owner against whose limits a query counts. Messages contain the owner.

    The queries of previews have no namespace.
    """
    return f"namespace {query.namespace}" if query.namespace else "previews"
