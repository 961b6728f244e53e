"""A pod settled as the server does it: decide, look up what is lacking, decide again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from tests.support.factories import LINGER, SETTINGS, Json, patched
from tests.support.registry import Handler, Server, found, query
from webhook.cluster.snapshot import Snapshot
from webhook.core.admission.decide import decide
from webhook.core.admission.review import make_request
from webhook.core.images import ImageConfig, Unavailable
from webhook.core.reasons import Outcome
from webhook.images.lookup import ImageLookup

HELPER = LINGER


def images(*registries: str, **mirrors: str) -> dict[str, Any]:
    """The parts of a policy that wraps every container, from these registries."""
    return {
        "remedies": {"postInitSleep": {"containers": ["*"]}},
        "imageConfig": {
            "lookup": "Registry",
            "registries": list(registries),
            "mirrors": mirrors,
        },
    }


async def settle(
    pod: Json, seen: Snapshot, lookup: ImageLookup, said: list[Outcome] | None = None
) -> Json:
    request = make_request(pod, "ci")
    decision = decide(request, seen.policies, seen, SETTINGS)
    if decision.missing_images:
        known = await lookup.find(decision.missing_images, 30)
        decision = decide(request, seen.policies, seen, SETTINGS, known)
    if said is not None:
        said += decision.outcomes
    return patched(pod, decision)


APP = ImageConfig(("/bin/app", "--x"), ("run", "$(HOME)"))


async def why(lookup: ImageLookup, server: Server, **said: Any) -> str:
    """Why `SERVER/a:1` is not available, without its name."""
    answer = await found(lookup, query(f"{server.host}/a:1", server.host, **said))
    assert isinstance(answer, Unavailable)
    return answer.why.removeprefix(f"{server.host}/a:1: ").replace(server.host, "SERVER")


def answering(**answers: Callable[[], web.StreamResponse]) -> Handler:
    """A handler by the last-but-one part of the path: manifests, blobs, token."""

    async def handle(request: web.Request) -> web.StreamResponse:
        return answers[request.path.split("/")[-2]]()

    return handle
