"""The look-ups of images for previews."""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.factories import policy
from tests.support.image_factories import image_policy
from webhook.core.images import ImageConfig, ImageQuery, KnownImages, LookupRules, Unavailable
from webhook.core.policy.coverage import PolicySet
from webhook.server.preview.image_lookups import MAX_IMAGES, look_up_images, lookup_rules_of

IN_FORCE = PolicySet([policy(**image_policy("registry.example"))])
(RULES,) = lookup_rules_of(IN_FORCE)
CONFIG = ImageConfig(("/app",), ())


class Resolver:
    """A resolver that records its queries."""

    stuck_dns_lookups = 0

    def __init__(self) -> None:
        self.queries: list[ImageQuery] = []

    async def find(
        self, queries: Iterable[ImageQuery], _seconds: float, *, max_images: int | None = 1
    ) -> KnownImages:
        assert max_images is None
        found = list(queries)
        self.queries += found
        return dict.fromkeys(found, CONFIG)

    async def aclose(self) -> None:
        """Do nothing."""


def query(image: str = "registry.example/a:1", rules: LookupRules = RULES) -> ImageQuery:
    return ImageQuery(image, rules, frozenset({"amd64"}), "ci", ("secret",), "builder")


async def test_preview_looks_images_up_without_pull_secrets_and_share_of_a_namespace() -> None:
    resolver = Resolver()
    images = await look_up_images(resolver, [query()], IN_FORCE, 60)
    assert resolver.queries == [ImageQuery("registry.example/a:1", RULES, frozenset({"amd64"}))]
    assert images[query()] == CONFIG


async def test_images_that_may_not_be_looked_up_are_unavailable() -> None:
    resolver = Resolver()
    other, invalid = query(rules=LookupRules(("*",))), query("UPPER:case:x")
    images = await look_up_images(resolver, [other, invalid], IN_FORCE, 60)
    assert resolver.queries == []
    assert "no policy in force" in str(images[other])
    assert isinstance(images[invalid], Unavailable)


async def test_preview_looks_up_a_bounded_number_of_images() -> None:
    resolver = Resolver()
    many = [query(f"registry.example/a:{number}") for number in range(MAX_IMAGES + 1)]
    images = await look_up_images(resolver, many, IN_FORCE, 60)
    assert len(resolver.queries) == MAX_IMAGES
    assert "at most 500" in str(images[many[-1]])


async def test_images_are_unavailable_when_the_time_is_over() -> None:
    resolver = Resolver()
    images = await look_up_images(resolver, [query()], IN_FORCE, 0)
    assert images[query()] == Unavailable("the registries did not answer within 0 s")
