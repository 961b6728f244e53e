"""Look-ups of the images that a preview needs.

The text of a preview can contain policies, so its author could choose the registries. The server
would then send requests from inside the cluster to addresses of this author's choice, and the
answer would show the results (SSRF). So only the look-up rules of policies in force count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from webhook.core.images import (
    ImageConfig,
    ImageQuery,
    ImageResolver,
    LookupRules,
    Unavailable,
)
from webhook.core.policy.coverage import PolicySet
from webhook.server.preview.messages import MAX_IMAGES_PER_MESSAGE, KnownImage
from webhook.server.preview.worker_client import MissingImage

_RULES_NOT_IN_FORCE = Unavailable(
    "the image was not looked up: no policy in force has this imageConfig, and a preview on the "
    "server asks no other registries; `podsettle preview --look-up-images` does"
)


async def look_up_images(
    images: ImageResolver, missing: Sequence[MissingImage], policies: PolicySet, seconds: float
) -> list[KnownImage]:
    """Look images up in batches, because hundreds of concurrent tasks would block the event loop.

    `policies` are the policies in force. Images with the look-up rules of another policy count as
    unavailable, and so do images without a result after `seconds`.
    """
    rules_in_force = _rules_of(policies)
    allowed = [image for image in missing if image.query.rules in rules_in_force]
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    results: dict[ImageQuery, ImageConfig | Unavailable] = {
        image.query: _RULES_NOT_IN_FORCE
        for image in missing
        if image.query.rules not in rules_in_force
    }
    for start in range(0, len(allowed), MAX_IMAGES_PER_MESSAGE):
        batch = [image.query for image in allowed[start : start + MAX_IMAGES_PER_MESSAGE]]
        remaining_seconds = deadline - loop.time()
        if remaining_seconds <= 0:
            break
        results |= await images.find(batch, remaining_seconds, max_images=None)
    timed_out = Unavailable(f"the registries did not answer within {seconds:g} s")
    return [_known_image(image.key, results.get(image.query, timed_out)) for image in missing]


def _rules_of(policies: PolicySet) -> frozenset[LookupRules]:
    """Return the look-up rules of all policies."""
    rules = (document.spec.image_config.rules for document in policies.documents)
    return frozenset(each for each in rules if each is not None)


def _known_image(key: bytes, result: ImageConfig | Unavailable) -> KnownImage:
    if isinstance(result, Unavailable):
        return KnownImage(key, unavailable=result.why)
    return KnownImage(key, result.entrypoint, result.cmd)
