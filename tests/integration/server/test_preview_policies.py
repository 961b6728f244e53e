"""SettlePolicies in the body of a preview, which decide in place of those in force."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.support.factories import container, pod, policy_document
from tests.support.http_client import in_process
from tests.support.server_fixtures import SETTINGS, make_components
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.core.admission.decider import OperatorSettings

pytestmark = pytest.mark.slow

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    **pod(
        container("i", "sh", "-c", "true"),
        labels={"tekton.dev/taskRun": "p"},
        restartPolicy="Never",
    ),
}


def policy(name: str, sleep: str = "1500ms", **spec: Any) -> dict[str, Any]:
    remedies = {"postInitSleep": {"when": "Always", "minLifetime": sleep, "sleep": sleep}}
    return policy_document(name, remedies=remedies, priority=900, **spec)


async def post(client: httpx.AsyncClient, *documents: Any) -> httpx.Response:
    return await client.post("/preview", content="\n---\n".join(map(json.dumps, documents)))


async def answer_to(client: httpx.AsyncClient, *documents: Any) -> Any:
    response = await post(client, *documents)
    assert response.status_code == 200, response.text
    return response.json()


def applied_by(answer: Any) -> list[str]:
    return [each["policy"] for each in answer["pods"][0]["outcomes"] if each["changed"]]


async def test_policy_in_the_body_decides_for_this_preview_only(client: httpx.AsyncClient) -> None:
    before = await answer_to(client, POD)
    assert applied_by(before) == ["tekton-on-crio"]
    tried = await answer_to(client, POD, policy("tekton-on-crio"))
    assert applied_by(tried) == ["tekton-on-crio"]
    assert '"1.5"' in json.dumps(tried["pods"][0]["patch"])
    added = await answer_to(client, policy("mine"), POD)
    assert applied_by(added) == ["mine"]
    assert await answer_to(client, POD) == before


async def test_policy_that_is_replaced_no_longer_acts(client: httpx.AsyncClient) -> None:
    tried = await answer_to(
        client, POD, policy("tekton-on-crio", podSelector={"matchLabels": {"a": "b"}})
    )
    assert applied_by(tried) == []


async def test_first_of_two_policies_with_one_name_decides(client: httpx.AsyncClient) -> None:
    for first, second in (("1500ms", "700ms"), ("700ms", "1500ms")):
        tried = await answer_to(client, POD, policy("mine", first), policy("mine", second))
        longer = '"1.5"' in json.dumps(tried["pods"][0]["patch"])
        assert longer is (first == "1500ms")


async def test_policies_in_a_list_decide(client: httpx.AsyncClient) -> None:
    tried = await answer_to(
        client, {"kind": "List", "apiVersion": "v1", "items": [policy("mine"), POD]}
    )
    assert applied_by(tried) == ["mine"]


async def test_invalid_policy_is_unreadable_and_the_one_in_force_decides(
    client: httpx.AsyncClient,
) -> None:
    tried = await answer_to(client, POD, policy("tekton-on-crio", sleep="soon"))
    assert applied_by(tried) == ["tekton-on-crio"]
    assert {each["kind"] for each in tried["unreadable"]} == {"SettlePolicy"}
    assert {each["line"] for each in tried["unreadable"]} == {3}


async def test_body_without_a_pod_is_refused(client: httpx.AsyncClient) -> None:
    response = await post(client, policy("mine"))
    assert response.status_code == 422
    assert "SettlePolicy/mine" in response.json()["detail"]


async def test_as_many_policies_as_are_within_the_limit_decide(client: httpx.AsyncClient) -> None:
    answer = await answer_to(client, POD, *(policy(f"p{number}") for number in range(200)))
    assert applied_by(answer) == ["p0"]


def test_answer_has_the_addresses_of_the_operators_explanations(source: ManifestsSource) -> None:
    docs_url = "https://docs.example/why"
    settings = OperatorSettings(linger_image=SETTINGS.linger_image, docs_url=docs_url)
    with in_process(make_components(source, settings=settings)) as server:
        client = server.connect(web=True)
        body = json.dumps(POD).encode()
        client.send(
            b"POST /preview HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        answer = json.loads(client.answer().body)  # type: ignore[attr-defined]
    explanations = {each["explanation"] for each in answer["pods"][0]["outcomes"]}
    assert f"{docs_url}#applied" in explanations
