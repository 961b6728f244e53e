"""Looking images up: from what a decision lacks to what it may be told.

What was learned is remembered in two steps. What a tag stands for holds for a minute, then one
HEAD request says whether it still does. What a digest stands for holds for ever. Both are
remembered apart for each set of credentials, so that nobody learns of an image that he may not
pull.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from webhook.core.images import ImageConfig, ImageQuery, Unavailable
from webhook.core.pull_secrets import PullSecrets
from webhook.dns_resolver import Resolver
from webhook.images.cache import Cache, TooManyError, bytes_of
from webhook.images.errors import LookupFailedError, RefusedError
from webhook.images.keyring import Credential, Keyring, read_keyring
from webhook.images.manifest import MOST_BYTES, config_of, platforms, read_config
from webhook.images.reference import Reference, Registry, parse, registry_of

if TYPE_CHECKING:
    from webhook.images.client import RegistryClient, Visit

log = logging.getLogger(__name__)

T = TypeVar("T")

_TAG_HOLDS = 60.0
_FAILURE_HOLDS = 30.0
_SECRETS_HOLD = 30.0
_BROKEN_SECRETS_HOLD = 5.0
_LONGEST_LOOK_UP = 10.0
"""Seconds for each step, whoever still waits: what comes too late for one pod is there for the
next."""
_ENTRIES = 1000
_MAX_KEYRINGS_BYTES = _MAX_CONFIGS_BYTES = 16 * 1024 * 1024
"""Real ones have a few hundred bytes, but a pull secret may have a megabyte and an image's
configuration a quarter of one, and as an object ten times as much."""
_FLIGHTS = 64
_FLIGHTS_PER_NAMESPACE = 12
"""So that one tenant's slow registries do not take all look-ups from the others."""
_MOST_IMAGES = 10
"""Of one pod."""
_MOST_LATE = 256
"""Look-ups that go on though nobody waits for them; more of them end after the step they are at."""
_MOST_PROBLEMS = 3
"""With pull secrets that one message tells of."""
_MAX_NAME_LOOKUPS = 64
_MAX_NAME_LOOKUPS_PER_NAMESPACE = 8
"""More registries than pods of one namespace need at the same time; each takes a thread."""


def new_resolver(count_refused: Callable[[], None] = lambda: None) -> Resolver:
    """What looks up the names of registries. `count_refused` is called for each one too many."""
    return Resolver(_MAX_NAME_LOOKUPS, _MAX_NAME_LOOKUPS_PER_NAMESPACE, count_refused=count_refused)


class ImageLookup:
    """The images of a cluster's pods. The caller closes it."""

    def __init__(
        self,
        pull_secrets: PullSecrets | None = None,
        *,
        count: Callable[[bool], None] = lambda _found: None,
        resolver: Resolver | None = None,
        context: ssl.SSLContext | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Without `pull_secrets` every registry is asked as nobody.

        `count` is told, whenever a registry was asked, whether something came of it: once for what
        a tag stands for and once for what a digest does, and not for what came from memory.
        `resolver` looks the registries' names up, with a share for each namespace.
        `context` is how TLS is checked: by default against the system's certificates.
        """
        self._resolver = resolver or new_resolver()
        self._pull_secrets = pull_secrets
        self._context = context
        self._client: RegistryClient | None = None
        self._count = count
        self._key = secrets.token_bytes(16)

        def cache(
            life: Callable[[T], float],
            size_of: Callable[[T], int] = lambda _found: 0,
            max_bytes: int = 0,
        ) -> Cache[tuple[object, ...], T]:
            return Cache(
                life,
                entries=_ENTRIES,
                size_of=size_of,
                max_bytes=max_bytes,
                flights=_FLIGHTS,
                flights_per_owner=_FLIGHTS_PER_NAMESPACE,
                clock=clock,
            )

        self._keyrings = cache(_keyring_life, _keyring_bytes, _MAX_KEYRINGS_BYTES)
        self._tags = cache(_tag_life)
        self._configs = cache(_config_life, _config_bytes, _MAX_CONFIGS_BYTES)
        self._late: set[asyncio.Task[ImageConfig | Unavailable]] = set()

    async def find(
        self, queries: Iterable[ImageQuery], seconds: float, *, most: int | None = _MOST_IMAGES
    ) -> dict[ImageQuery, ImageConfig | Unavailable]:
        """An answer to every query, in `seconds` at the most. Raises nothing.

        Only the first `most` are looked up, a few at a time: by default what one pod may want.
        """
        distinct = tuple(dict.fromkeys(queries))
        if not distinct:
            return {}
        turn = asyncio.Semaphore(_MOST_IMAGES)
        asked = distinct[:most]
        tasks = {query: asyncio.create_task(self._find(query, turn)) for query in asked}
        try:
            await asyncio.wait(tasks.values(), timeout=seconds)
            results = {query: self._result(task, seconds) for query, task in tasks.items()}
        finally:
            for task in tasks.values():
                self._let_go_on(task)
        too_many = Unavailable(f"no more than {most} images of a pod are looked up")
        return results | dict.fromkeys(distinct[len(asked) :], too_many)

    async def aclose(self) -> None:
        """End what is under way, and close what is open."""
        late = tuple(self._late)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        for cache in (self._keyrings, self._tags, self._configs):
            await cache.aclose()
        if self._client is not None:
            await self._client.aclose()

    def _let_go_on(self, task: asyncio.Task[ImageConfig | Unavailable]) -> None:
        if task.done():
            return
        if len(self._late) >= _MOST_LATE:
            task.cancel()
            return
        self._late.add(task)
        task.add_done_callback(self._arrived_late)

    def _arrived_late(self, task: asyncio.Task[ImageConfig | Unavailable]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            self._answer(task)

    def _result(
        self, task: asyncio.Task[ImageConfig | Unavailable], seconds: float
    ) -> ImageConfig | Unavailable:
        if task.done() and not task.cancelled():
            return self._answer(task)
        return Unavailable(f"the registry did not answer within {seconds:.2g} s")

    @staticmethod
    def _answer(task: asyncio.Task[ImageConfig | Unavailable]) -> ImageConfig | Unavailable:
        defect = task.exception()
        if defect is None:
            return task.result()
        log.error("a defect in podsettle: an image was not looked up", exc_info=defect)
        return Unavailable(f"a defect in podsettle: {type(defect).__name__}")

    async def _find(self, query: ImageQuery, turn: asyncio.Semaphore) -> ImageConfig | Unavailable:
        try:
            reference = parse(query.image)
            registry = registry_of(reference, query.rules)
        except (ValueError, LookupFailedError) as error:
            return Unavailable(str(error))
        try:
            async with turn:
                keyring = await self._keyring(query)
                credentials: tuple[Credential, ...] = ()
                if keyring.holdings:
                    credentials = await asyncio.to_thread(keyring.matching, registry.name)
                asker = _Asker(self._connected(), registry, credentials, _owner(query))
                found = await self._ask(asker, reference, query)
        except (ValueError, TooManyError) as error:
            return Unavailable(f"{reference}: {error}")
        if isinstance(found, Unavailable):
            return Unavailable("; ".join((f"{reference}: {found.why}", *_told(keyring.problems))))
        return found

    async def _ask(
        self, asker: _Asker, reference: Reference, query: ImageQuery
    ) -> ImageConfig | Unavailable:
        architectures, owner = query.architectures, _owner(query)
        key = (asker.registry, self._fingerprint(asker.credentials))
        digest: str | Unavailable = reference.digest
        if not digest:
            digest = await self._tags.get(
                (*key, reference.tag),
                lambda: self._counted(asker.ask(lambda visit: visit.digest(reference.tag))),
                owner,
            )
        if isinstance(digest, Unavailable):
            return digest
        return await self._configs.get(
            (*key, digest, architectures),
            lambda: self._counted(asker.ask(lambda visit: _config(visit, digest, architectures))),
            owner,
        )

    async def _counted(self, asking: Awaitable[T | Unavailable]) -> T | Unavailable:
        found = await asking
        self._count(not isinstance(found, Unavailable))
        return found

    async def _keyring(self, query: ImageQuery) -> Keyring:
        reader = self._pull_secrets
        if reader is None:
            return Keyring()
        asked = (query.namespace, query.pull_secrets, query.service_account)

        async def read() -> Keyring:
            # In a thread: tenants write the secrets, up to a megabyte together.
            return await asyncio.to_thread(read_keyring, await reader.read(*asked))

        return await self._keyrings.get(asked, read, _owner(query))

    def _connected(self) -> RegistryClient:
        if self._client is None:
            # Only now: without a look-up nobody pays for it.
            from webhook.images.client import RegistryClient

            self._client = RegistryClient(self._resolver, context=self._context)
        return self._client

    def _fingerprint(self, credentials: tuple[Credential, ...]) -> bytes:
        """Of credentials, so that they are not kept for as long as what they let us see."""
        digest = hashlib.blake2b(key=self._key)
        for text in (text for credential in credentials for text in credential):
            encoded = text.encode("utf-8", "surrogatepass")
            digest.update(len(encoded).to_bytes(8, "big") + encoded)
        return digest.digest()


class _Asker:
    """Asks one registry with each credential in turn, and stays with the one that is let in."""

    def __init__(
        self,
        client: RegistryClient,
        registry: Registry,
        credentials: tuple[Credential, ...],
        owner: str,
    ) -> None:
        self.registry = registry
        self.credentials = credentials
        self._visits = [client.visit(registry, each, owner) for each in credentials or (None,)]

    async def ask(self, look: Callable[[Visit], Awaitable[T]]) -> T | Unavailable:
        """What `look` finds, or why it finds nothing."""
        why: dict[str, None] = {}
        try:
            async with asyncio.timeout(_LONGEST_LOOK_UP):
                for position, visit in enumerate(self._visits):
                    try:
                        found = await look(visit)
                    except RefusedError as error:
                        why[str(error)] = None
                    else:
                        self._visits = self._visits[position:]
                        return found
        except LookupFailedError as error:
            why[str(error)] = None
        except TimeoutError:
            why[f"the registry did not answer within {_LONGEST_LOOK_UP:.2g} s"] = None
        return Unavailable(", then ".join(why))


def _owner(query: ImageQuery) -> str:
    """Whose shares a query uses, as messages name it."""
    return f"namespace {query.namespace}"


async def _config(visit: Visit, digest: str, architectures: frozenset[str]) -> ImageConfig:
    """What the image of a digest starts, whichever of its platforms a pod runs on."""
    manifest = await visit.manifest(digest)
    config = config_of(manifest)
    if config is not None:
        return await _read(visit, config.digest, config.size)
    entries = platforms(manifest, architectures)
    configs = set()
    for inner in await _all(visit.manifest(entry.digest) for entry in entries):
        config = config_of(inner)
        if config is None:
            raise LookupFailedError("the index holds another index")
        configs.add((config.digest, config.size))
    found = set(await _all(_read(visit, *each) for each in configs))
    if len(found) > 1:
        raise LookupFailedError(
            "it starts different things on the platforms that the pod could run on"
        )
    return found.pop()


async def _all(asking: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What all of them find; the first that fails ends the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(each) for each in asking]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


async def _read(visit: Visit, digest: str, size: int) -> ImageConfig:
    if size > MOST_BYTES:
        raise LookupFailedError(f"the image's configuration has {size} bytes, more than it reads")
    return read_config(await visit.blob(digest))


def _told(problems: tuple[str, ...]) -> tuple[str, ...]:
    """The first few, and how many more there are."""
    more = len(problems) - _MOST_PROBLEMS
    told = problems[:_MOST_PROBLEMS]
    return (*told, f"and {more} more problems with pull secrets") if more > 0 else told


def _tag_life(found: str | Unavailable) -> float:
    return _FAILURE_HOLDS if isinstance(found, Unavailable) else _TAG_HOLDS


def _config_life(found: ImageConfig | Unavailable) -> float:
    return _FAILURE_HOLDS if isinstance(found, Unavailable) else inf


def _keyring_life(found: Keyring) -> float:
    return _BROKEN_SECRETS_HOLD if found.problems else _SECRETS_HOLD


def _keyring_bytes(found: Keyring) -> int:
    return found.bytes


def _config_bytes(found: ImageConfig | Unavailable) -> int:
    return bytes_of(found)
