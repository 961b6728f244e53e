"""The look-ups of images for previews."""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.factories import policy, view
from tests.support.image_factories import image_policy
from webhook.core.images import ImageConfig, ImageQuery, LookupRules, Unavailable
from webhook.images.lookup import ImageLookup
from webhook.server.preview.previewer import MAX_IMAGES, look_up_images

IN_FORCE = view(policy(**image_policy("registry.example")))
RULES = IN_FORCE.policies.documents[0].spec.image_config.rules
assert RULES is not None
CONFIG = ImageConfig(("/app",), ())


class Resolver(ImageLookup):
    """Look-ups that are only recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.queries: list[ImageQuery] = []

    async def find(
        self, queries: Iterable[ImageQuery], seconds: float, *, max_images: int | None = 1
    ) -> dict[ImageQuery, ImageConfig | Unavailable]:
        assert (seconds, max_images) == (60, MAX_IMAGES)
        found = list(queries)
        self.queries += found
        return dict.fromkeys(found, CONFIG)


def query(rules: LookupRules | None = RULES) -> ImageQuery:
    assert rules is not None
    image = "registry.example/a:1"
    return ImageQuery(image, rules, frozenset({"amd64"}), "ci", ("secret",), "builder")


async def test_preview_looks_images_up_without_pull_secrets_and_share_of_a_namespace() -> None:
    resolver = Resolver()
    images = await look_up_images(resolver, [query()], IN_FORCE, 60)
    assert resolver.queries == [ImageQuery(query().image, query().rules, frozenset({"amd64"}))]
    assert images[query()] == CONFIG


async def test_image_with_rules_of_a_policy_that_is_not_in_force_is_not_looked_up() -> None:
    resolver = Resolver()
    other = query(LookupRules(("*",)))
    images = await look_up_images(resolver, [other], IN_FORCE, 60)
    assert resolver.queries == []
    assert "no policy in force" in str(images[other])
