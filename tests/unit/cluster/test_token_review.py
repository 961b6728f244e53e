"""Authorization while clients send many invalid tokens, with an API server that takes its time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tests.support.stepped_loop import stepped
from webhook.cluster.access_decision import Access
from webhook.cluster.client import ApiServer
from webhook.cluster.token_review import ClusterAuthorizer

VALID = "valid"
ATTACKER, PROMETHEUS = "10.0.0.66", "10.0.0.1"


class SlowApiServer:
    """An API server that knows one token, and takes 100 ms for each review of a token."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        """The tokens of all TokenReviews."""

    async def request(self, _method: str, path: str, body: Any) -> Any:
        if "tokenreviews" not in path:
            return {"status": {"allowed": True}}
        token = body["spec"]["token"]
        self.tokens.append(token)
        await asyncio.sleep(0.1)
        return {"status": {"authenticated": token == VALID, "user": {}}}


class Attacked:
    """An authorizer, with the clock of its event loop."""

    def __init__(self, max_cached: int = 1024) -> None:
        self.server = SlowApiServer()
        self.loop = asyncio.get_running_loop()
        self.authorizer = ClusterAuthorizer(
            cast(ApiServer, self.server), self.loop.time, max_cached
        )

    async def access(self, token: str, client: str) -> Access:
        return (await self.authorizer.authorize(token, "get", "/metrics", client)).access

    async def flood(self, tokens: int, client: str = ATTACKER) -> list[asyncio.Task[Access]]:
        """Send invalid tokens, none of which is answered when this returns."""
        tasks = [
            asyncio.create_task(self.access(f"{client} {number}", client))
            for number in range(tokens)
        ]
        await asyncio.sleep(0.01)
        return tasks


@stepped
async def test_invalid_tokens_do_not_delay_a_valid_token_of_another_client() -> None:
    attacked = Attacked()
    attack = await attacked.flood(400)
    start = attacked.loop.time()
    assert await attacked.access(VALID, PROMETHEUS) is Access.GRANTED
    assert attacked.loop.time() - start == pytest.approx(0.1)
    results = await asyncio.gather(*attack)
    assert {*results} == {Access.UNAUTHENTICATED, Access.UNKNOWN}


@stepped
async def test_recently_granted_token_is_reviewed_before_those_of_many_clients() -> None:
    attacked = Attacked()
    assert await attacked.access(VALID, PROMETHEUS) is Access.GRANTED
    await asyncio.sleep(60)
    # The proxy in front of all clients is one of them.
    floods = [await attacked.flood(50, f"10.0.1.{number}") for number in range(30)]
    floods.append(await attacked.flood(50, PROMETHEUS))
    start = attacked.loop.time()
    assert await attacked.access(VALID, PROMETHEUS) is Access.GRANTED
    assert attacked.loop.time() - start <= 0.2
    await asyncio.gather(*(task for flood in floods for task in flood))


@stepped
async def test_refusals_do_not_evict_grants() -> None:
    attacked = Attacked(max_cached=10)
    assert await attacked.access(VALID, PROMETHEUS) is Access.GRANTED
    await asyncio.gather(*await attacked.flood(40))
    assert await attacked.access(VALID, PROMETHEUS) is Access.GRANTED
    assert attacked.server.tokens.count(VALID) == 1


@stepped
async def test_concurrent_requests_with_one_token_share_its_review() -> None:
    attacked = Attacked()
    first = asyncio.create_task(attacked.access(VALID, PROMETHEUS))
    await asyncio.sleep(0.05)
    others = asyncio.gather(*(attacked.access(VALID, PROMETHEUS) for _ in range(100)))
    first.cancel()
    assert {*await others} == {Access.GRANTED}
    assert attacked.server.tokens == [VALID]


@pytest.mark.parametrize(
    "answer",
    [[], {"status": None}, {"status": {"authenticated": True, "user": "admin"}}],
    ids=["no review", "no status", "no user"],
)
@stepped
async def test_malformed_answer_of_the_api_server_is_no_decision(answer: object) -> None:
    class BrokenApiServer:
        async def request(self, _method: str, _path: str, _body: Any) -> Any:
            return answer

    authorizer = ClusterAuthorizer(cast(ApiServer, BrokenApiServer()))
    decision = await authorizer.authorize(VALID, "get", "/metrics", PROMETHEUS)
    assert decision.access is Access.UNKNOWN
