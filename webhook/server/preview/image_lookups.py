"""Look-ups of the images that a preview needs.

The text of a preview can contain policies, so its author could choose the registries. The server
would then send requests from inside the cluster to addresses of this author's choice, and the
answer would show the results (SSRF). So only the look-up rules of policies in force count.

A client can name any namespace in a preview, and could otherwise read images with the pull secrets
of that namespace, and use up its share of the look-ups. So look-ups have no namespace and no pull
secrets, and all previews together have one share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping

from webhook.core.image_reference import parse_reference
from webhook.core.images import (
    ImageConfig,
    ImageQuery,
    ImageResolver,
    LookupRules,
    Unavailable,
)
from webhook.core.policy.coverage import PolicySet

MAX_IMAGES = 500
"""The maximum number of images that are looked up for one preview."""
_BATCH_IMAGES = 50
"""The number of images that are looked up at a time. Hundreds of concurrent tasks would block the
event loop."""
_RULES_NOT_IN_FORCE = Unavailable(
    "the image was not looked up: no policy in force has this imageConfig, and a preview on the "
    "server asks no other registries; `podsettle preview --look-up-images` does"
)
_TOO_MANY = Unavailable(f"the image was not looked up: a preview looks up at most {MAX_IMAGES}")


class LookedUpImages(Mapping[ImageQuery, ImageConfig | Unavailable]):
    """The results of the look-ups for a preview. Images without a result count as unavailable."""

    def __init__(self, results: Mapping[ImageQuery, ImageConfig | Unavailable]) -> None:
        """`results` has queries without the fields of a pod."""
        self._results = results

    def __getitem__(self, query: ImageQuery) -> ImageConfig | Unavailable:
        return self._results.get(_without_pod(query), _TOO_MANY)

    def __iter__(self) -> Iterator[ImageQuery]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)


async def look_up_images(
    images: ImageResolver, missing: Iterable[ImageQuery], policies: PolicySet, seconds: float
) -> LookedUpImages:
    """Return the configurations of images.

    `policies` are the policies in force. Images with the look-up rules of another policy count as
    unavailable, and so do images without a result after `seconds`.
    """
    rules_in_force = lookup_rules_of(policies)
    results: dict[ImageQuery, ImageConfig | Unavailable] = {}
    allowed: list[ImageQuery] = []
    for query in dict.fromkeys(map(_without_pod, missing)):
        try:
            parse_reference(query.image)
        except ValueError as error:
            results[query] = Unavailable(str(error))
            continue
        if query.rules not in rules_in_force:
            results[query] = _RULES_NOT_IN_FORCE
        elif len(allowed) < MAX_IMAGES:
            allowed.append(query)
    timed_out = Unavailable(f"the registries did not answer within {seconds:g} s")
    results |= dict.fromkeys(allowed, timed_out)
    deadline = asyncio.get_running_loop().time() + seconds
    for start in range(0, len(allowed), _BATCH_IMAGES):
        remaining_seconds = deadline - asyncio.get_running_loop().time()
        if remaining_seconds <= 0:
            break
        batch = allowed[start : start + _BATCH_IMAGES]
        results |= await images.find(batch, remaining_seconds, max_images=None)
    return LookedUpImages(results)


def lookup_rules_of(policies: PolicySet) -> frozenset[LookupRules]:
    """Return the look-up rules of all policies."""
    rules = (document.spec.image_config.rules for document in policies.documents)
    return frozenset(each for each in rules if each is not None)


def _without_pod(query: ImageQuery) -> ImageQuery:
    return ImageQuery(query.image, query.rules, query.architectures)
