"""POST /preview: workloads in YAML and JSON, and refused input."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
import yaml

from tests.support.factories import policy_document

pytestmark = pytest.mark.slow

TEMPLATE = {
    "metadata": {"labels": {"tekton.dev/taskRun": "x"}},
    "spec": {
        "initContainers": [{"name": "prepare", "image": "a", "command": ["sh", "-c", "true"]}],
        "containers": [{"name": "main", "image": "a"}],
    },
}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "ci"},
    "spec": {"template": TEMPLATE},
}


async def preview(client: httpx.AsyncClient, body: Any, **params: Any) -> list[dict[str, Any]]:
    answer = await client.post(
        "/preview", content=yaml.safe_dump(body, sort_keys=False), params=params
    )
    assert answer.status_code == 200, answer.text
    pods: list[dict[str, Any]] = answer.json()["pods"]
    return pods


async def refusal(
    client: httpx.AsyncClient, body: Any, status: int = 422, params: dict[str, str] | None = None
) -> str:
    """Return why a preview is refused."""
    content = body if isinstance(body, str) else json.dumps(body)
    answer = await client.post("/preview", content=content, params=params)
    assert answer.status_code == status
    detail: str = answer.json()["detail"]
    return detail


async def test_deployment_is_previewed_in_yaml_and_json(client: httpx.AsyncClient) -> None:
    (pod,) = await preview(client, DEPLOYMENT)
    assert (pod["kind"], pod["name"], pod["namespace"]) == ("Deployment", "web", "ci")
    assert pod["path"] == "spec.template"
    assert pod["policies"][0] == "tekton-on-crio"
    assert pod["outcomes"][0]["reason"] == "Applied"
    assert pod["before"]["spec"]["initContainers"][0]["command"] == ["sh", "-c", "true"]
    assert pod["after"]["spec"]["initContainers"][0]["command"][-3:] == ["sh", "-c", "true"]
    assert "+    podsettle.dev/applied: tekton-on-crio/postInitSleep" in pod["diff"]
    assert (await client.post("/preview", json=DEPLOYMENT)).json()["pods"] == [pod]


async def test_custom_resource_is_previewed_with_its_template_path(
    client: httpx.AsyncClient,
) -> None:
    custom = {
        "apiVersion": "example.com/v1",
        "kind": "Fleet",
        "metadata": {"name": "f", "namespace": "ci"},
        "spec": {"workers": {"template": TEMPLATE}},
    }
    (pod,) = await preview(client, custom, templatePath="spec.workers.template")
    assert pod["outcomes"][0]["reason"] == "Applied"
    assert "does not know where a Fleet keeps its pod template" in await refusal(client, custom)


async def test_namespace_and_its_labels_can_be_overridden(client: httpx.AsyncClient) -> None:
    (pod,) = await preview(client, DEPLOYMENT, namespace="leave-us-alone")
    assert pod["outcomes"][0]["reason"] == "NamespaceDisabled"
    (pod,) = await preview(
        client, DEPLOYMENT, namespace="leave-us-alone", namespaceLabel=["team=ci"]
    )
    assert pod["outcomes"][0]["reason"] == "Applied"
    (pod,) = await preview(client, DEPLOYMENT, namespaceLabel="podsettle.dev/policy=none-such")
    assert "none-such" in pod["warnings"][0]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", "the body is empty"),
        ("a: [}", "body:1: not YAML"),
        ("kind: Service", "body:1: Service/(unnamed): a Service holds no pod"),
        ("kind: List\nitems: []", "the list is empty"),
        ("kind: A\n---\n" * 30, "and 10 more objects without a pod"),
        ("just text", "is not a Kubernetes object"),
        (
            "kind: Deployment\nspec: {}",
            "body:1: Deployment/(unnamed): spec.template of this Deployment is missing",
        ),
        ("kind: Pod", "spec of this Pod is missing"),
        ("a: 1\na: 2", "body:2: duplicate key 'a'"),
        ("apiVersion: v1\nkind: " + "K" * 200_000, "K" * 9_000),
    ],
)
async def test_invalid_input_is_answered_422_with_a_reason(
    client: httpx.AsyncClient, body: str, words: str
) -> None:
    detail = await refusal(client, body)
    assert words in detail
    assert len(detail) <= 10_000


async def test_invalid_namespace_label_is_answered_422(client: httpx.AsyncClient) -> None:
    detail = await refusal(client, DEPLOYMENT, params={"namespaceLabel": "team"})
    assert "'team' is not of the form key=value" in detail


async def test_unknown_parameters_are_answered_422(client: httpx.AsyncClient) -> None:
    for params, named in (
        ({"namspace": "ci"}, "'namspace'"),
        ({"namespace": "ci", "namespacelabel": "a=b"}, "'namespacelabel'"),
        ({"x" * 5000: ""}, f"'{'x' * 100}'"),
    ):
        assert await refusal(client, DEPLOYMENT, params=params) == (
            f"unknown parameter {named}; it takes namespace, namespaceLabel, templatePath"
        )


async def test_openapi_document_names_the_parameters_of_previews(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    found = {each["name"] for each in document["paths"]["/preview"]["post"]["parameters"]}
    params = dict.fromkeys(found - {"namespaceLabel"}, "x") | {"namespaceLabel": "a=b"}
    answer = await client.post("/preview", json=DEPLOYMENT, params=params)
    assert "unknown parameter" not in answer.text


def pods(count: int) -> str:
    return json.dumps({"kind": "List", "items": [{"kind": "Pod", "spec": {}}] * count})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (" " * (256 * 1024 + 1), "the body is longer than 256 KiB"),
        (pods(51), "more than 50 pods"),
        (
            f"{pods(1)}\n---\n"
            + "".join(
                f"{json.dumps(policy_document(f'p{number}', description='x' * 60_000))}\n---\n"
                for number in range(2)
            ),
            "the policies are longer than 64 KiB as JSON",
        ),
    ],
    ids=["bytes", "pods", "policies"],
)
async def test_text_above_a_maximum_is_answered_413(
    client: httpx.AsyncClient, body: str, words: str
) -> None:
    detail = await refusal(client, body, 413)
    assert detail == f"{words}: use `podsettle preview`, which has no limit"


async def test_text_at_the_maxima_is_previewed(client: httpx.AsyncClient) -> None:
    answer = await client.post("/preview", content=pods(50).ljust(256 * 1024))
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["pods"]) == 50


async def test_preview_reports_items_that_are_not_workloads(
    client: httpx.AsyncClient,
) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    run = {"apiVersion": "tekton.dev/v1", "kind": "TaskRun", "metadata": {"name": "build"}}
    items = [service, DEPLOYMENT, {"metadata": {"name": "odd"}}, run, DEPLOYMENT]
    answer = await client.post("/preview", json={"kind": "List", "items": items})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert [pod["path"] for pod in found["pods"]] == [
        "items[1].spec.template",
        "items[4].spec.template",
    ]
    assert found["passedOver"][0] == {
        "kind": "Service",
        "name": "web",
        "namespace": "",
        "source": "body",
        "line": 1,
        "path": "items[0]",
        "message": "a Service holds no pod",
    }
    assert "tekton.dev/taskRun=build" in found["passedOver"][1]["message"]
    assert [(each["name"], each["path"]) for each in found["unreadable"]] == [("odd", "items[2]")]
