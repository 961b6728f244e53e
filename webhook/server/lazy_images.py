"""Image look-ups that are loaded when the first image has to be looked up.

`webhook.images` and its HTTP client are an optional part. A server whose policies have no
`imageConfig` with `lookup: Registry` never imports them. The composition root, `webhook.cli`, gives
the server a function that does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Protocol

from webhook.core.images import (
    MAX_IMAGES_PER_POD,
    ImageQuery,
    ImageResolver,
    KnownImages,
    Unavailable,
)
from webhook.core.pull_secrets import PullSecrets

log = logging.getLogger(__name__)

_RETRY_SECONDS = 30.0
"""The time between two attempts to load, so that an attempt that always fails uses little CPU."""


class NewImageResolver(Protocol):
    """A function that imports an implementation of ImageResolver, and returns a new instance."""

    def __call__(
        self,
        pull_secrets: PullSecrets | None = None,
        *,
        count: Callable[[bool], None],
        count_refused_dns_lookup: Callable[[], None],
    ) -> ImageResolver:
        """Return a resolver. It sends no credentials to registries if `pull_secrets` is None.

        The resolver calls `count` after each step that sends requests to a registry, with True if
        the step succeeded.
        """


class LazyImageResolver:
    """An ImageResolver that creates another one for its first query, and delegates to it.

    Use it on one event loop only.
    """

    def __init__(
        self,
        load: Callable[[], ImageResolver],
        *,
        retry_seconds: float = _RETRY_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`load` runs in a thread, because its imports would delay all reviews.

        If it raises, it is called again for a query at least `retry_seconds` later.
        """
        self._load = load
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._resolver: ImageResolver | None = None
        self._loading: asyncio.Task[None] | None = None
        self._failure: Unavailable | None = None
        self._failed_at = 0.0

    @property
    def stuck_dns_lookups(self) -> int:
        """The number of DNS look-ups that have taken more than 5 s so far."""
        return 0 if self._resolver is None else self._resolver.stuck_dns_lookups

    async def find(
        self,
        queries: Iterable[ImageQuery],
        seconds: float,
        *,
        max_images: int | None = MAX_IMAGES_PER_POD,
    ) -> KnownImages:
        """Return a result for every query within `seconds`. This method raises no error."""
        queries = tuple(queries)
        if not queries:
            return {}
        started_at = self._clock()
        resolver = self._resolver or await self._wait_for_load(seconds)
        if isinstance(resolver, Unavailable):
            return dict.fromkeys(queries, resolver)
        remaining_seconds = max(seconds - (self._clock() - started_at), 0.0)
        return await resolver.find(queries, remaining_seconds, max_images=max_images)

    async def aclose(self) -> None:
        """Close the resolver, if one was loaded."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait([self._loading])
        if self._resolver is not None:
            await self._resolver.aclose()

    async def _wait_for_load(self, seconds: float) -> ImageResolver | Unavailable:
        """Return the resolver, or the result for all queries if it cannot be used now."""
        if self._failure is not None and self._clock() - self._failed_at < self._retry_seconds:
            return self._failure
        if self._loading is None:
            self._failure = None
            self._loading = asyncio.create_task(self._load_in_thread())
        # A timeout does not end the load, because the next pod needs the resolver, too.
        await asyncio.wait([self._loading], timeout=seconds)
        return (
            self._resolver
            or self._failure
            or Unavailable(f"podsettle's image look-ups were not loaded within {seconds:.2g} s")
        )

    async def _load_in_thread(self) -> None:
        try:
            self._resolver = await asyncio.to_thread(self._load)
        except Exception as error:
            self._failed_at = self._clock()
            self._failure = Unavailable(
                f"podsettle's image look-ups cannot be loaded: {type(error).__name__}"
            )
            log.exception(
                "image look-up: cannot be loaded: containers without a command stay unchanged; "
                "trying again in %g s",
                self._retry_seconds,
            )
        finally:
            self._loading = None
