"""One CA for all servers, and look-ups that trust it."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import trustme

from tests.support.registry import Image, RunningRegistry, image_of, start_registry
from webhook.core.pull_secrets import PullSecrets
from webhook.images.lookup import ImageLookup, LookupLimits


class Clock:
    """A clock that stands still until a test moves it."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


NewLookup = Callable[..., ImageLookup]


@pytest.fixture(scope="session")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusting(ca: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    return context


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def new_lookup(trusting: ssl.SSLContext, clock: Clock) -> AsyncIterator[NewLookup]:
    made: list[ImageLookup] = []

    def new(
        secrets: PullSecrets | None = None,
        limits: LookupLimits = LookupLimits(),  # noqa: B008 (it is frozen)
    ) -> ImageLookup:
        made.append(ImageLookup(secrets, new_context=lambda: trusting, clock=clock, limits=limits))
        return made[-1]

    yield new
    for lookup in made:
        await lookup.aclose()


@pytest.fixture
async def lookup(new_lookup: NewLookup) -> ImageLookup:
    return new_lookup()


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory, ca: trustme.CA) -> Iterator[RunningRegistry]:
    """A registry without authentication."""
    with start_registry(tmp_path_factory.mktemp("registry"), ca) as running:
        yield running


@pytest.fixture(scope="session")
def image() -> Image:
    return image_of(["/bin/app", "--x"], ["run", "$(HOME)"])
