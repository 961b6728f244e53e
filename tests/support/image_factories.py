"""Factories for tests of image look-ups: policies, decisions with a look-up, registry handlers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from tests.support.both_ways import admit_both_ways
from tests.support.factories import LINGER, SETTINGS, Json, patched, review
from tests.support.registry import Handler, Server, look_up, query
from webhook.core.images import ImageConfig, Unavailable
from webhook.core.policy.snapshot import Snapshot
from webhook.core.reasons import Outcome
from webhook.images.lookup import ImageLookup

HELPER = LINGER


def image_policy(*registries: str, **mirrors: str) -> dict[str, Any]:
    """Return spec fields of a policy that wraps every container of an image from `registries`."""
    return {
        "remedies": {"postInitSleep": {"containers": ["*"]}},
        "imageConfig": {
            "lookup": "Registry",
            "registries": list(registries),
            "mirrors": mirrors,
        },
    }


async def mutate_pod_with_lookup(
    pod: Json, view: Snapshot, lookup: ImageLookup, outcomes: list[Outcome] | None = None
) -> Json:
    """Return the pod that the server admits: decide, look up missing images, decide again.

    The outcomes are appended to `outcomes`.
    """
    body = json.dumps(review(pod)).encode()
    answer = admit_both_ways(body, view, SETTINGS)
    if answer.decision.missing_images:
        known = await lookup.find(answer.decision.missing_images, 30)
        answer = admit_both_ways(body, view, SETTINGS, known)
    if outcomes is not None:
        outcomes += answer.decision.outcomes
    return patched(pod, answer.decision)


APP = ImageConfig(("/bin/app", "--x"), ("run", "$(HOME)"))


async def unavailable_reason(lookup: ImageLookup, server: Server, **fields: Any) -> str:
    """Return why `SERVER/a:1` is not available, without the name of the image."""
    answer = await look_up(lookup, query(f"{server.host}/a:1", server.host, **fields))
    assert isinstance(answer, Unavailable)
    return answer.why.removeprefix(f"{server.host}/a:1: ").replace(server.host, "SERVER")


def handler_of(**answers: Callable[[], web.StreamResponse]) -> Handler:
    """Return a handler that chooses by the last but one path segment: manifests, blobs, token."""

    async def handle(request: web.Request) -> web.StreamResponse:
        return answers[request.path.split("/")[-2]]()

    return handle
