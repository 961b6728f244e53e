"""The preview endpoint and the command line look images up without credentials."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import httpx
import pytest
import trustme
import yaml
from fastapi import FastAPI

from tests.support.factories import SETTINGS, container, pod, policy, policy_document, view
from tests.support.image_factories import HELPER, image_policy
from tests.support.image_fixtures import NewLookup
from tests.support.process import podsettle_process
from tests.support.registry import Image, RunningRegistry
from tests.support.server_fixtures import UNHURRIED
from webhook.images.lookup import ImageLookup
from webhook.server.preview.previewer import Previewer
from webhook.server.preview.route import preview_router


def new_pod(registry: RunningRegistry) -> dict[str, Any]:
    return pod(container("a", image=f"{registry.host}/shown:1"), restartPolicy="Never")


def many_pods(registry: RunningRegistry) -> str:
    """Return pods with more images than podsettle looks up for one pod."""
    images = [f"{registry.host}/many/{n}:1" for n in range(15)]
    pods = [pod(container("a", image=image), restartPolicy="Never") for image in images]
    return yaml.safe_dump_all(pods)


async def post_preview(
    registry: RunningRegistry, lookup: ImageLookup | None, body: str = "", **in_force: Any
) -> list[dict[str, Any]]:
    app = FastAPI()
    seen = view(policy(**(in_force or image_policy(registry.host))))
    previewer = Previewer(lambda: seen, SETTINGS, lookup, UNHURRIED)
    app.include_router(preview_router(previewer, lambda _result: None))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://podsettle") as client:
        answer = await client.post("/preview", content=body or json.dumps(new_pod(registry)))
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["pods"][0]
    return found


async def test_preview_endpoint_wraps_a_container_by_its_image_configuration(
    registry: RunningRegistry, image: Image, new_lookup: NewLookup
) -> None:
    registry.push("shown", "1", image)
    shown: Any = await post_preview(registry, new_lookup())
    (init,) = [c for c in shown["after"]["spec"]["initContainers"] if c["name"] == "a"]
    assert init["command"] == [*HELPER, "/bin/app", "--x"]
    assert init["args"] == ["run", "$$(HOME)"]
    without: Any = await post_preview(registry, None)
    reasons = [(o["container"], o["reason"]) for o in without["outcomes"]]
    assert ("a", "ImageConfigUnavailable") in reasons


@pytest.mark.parametrize(
    "in_force",
    [
        {"remedies": {"postInitSleep": {"containers": ["*"]}}},
        image_policy("*.example"),
        image_policy("127.0.0.1:*"),
        image_policy(**{"quay.io": "127.0.0.1:1"}),
    ],
    ids=["no look-ups", "another registry", "a wider glob", "a mirror"],
)
async def test_policy_in_the_body_chooses_no_registry(
    registry: RunningRegistry, image: Image, new_lookup: NewLookup, in_force: dict[str, Any]
) -> None:
    registry.push("shown", "1", image)
    chosen = image_policy(registry.host) | {"priority": 9999}
    for name in ("default", "mine"):
        documents = [new_pod(registry), policy_document(name, **chosen)]
        before = len(registry.requests())
        shown: Any = await post_preview(
            registry, new_lookup(), yaml.safe_dump_all(documents), **in_force
        )
        assert len(registry.requests()) == before
        messages = {o["container"]: o["message"] for o in shown["outcomes"]}
        assert "no policy in force has this imageConfig" in messages["a"]


async def test_policy_in_the_body_with_registries_in_force_wraps_by_the_image(
    registry: RunningRegistry, image: Image, new_lookup: NewLookup
) -> None:
    registry.push("shown", "1", image)
    edited = image_policy(registry.host) | {"priority": 9999}
    edited["remedies"] = {"postInitSleep": {"containers": ["*"], "sleep": "70ms"}}
    documents = [new_pod(registry), policy_document("mine", **edited)]
    shown: Any = await post_preview(registry, new_lookup(), yaml.safe_dump_all(documents))
    (init,) = [c for c in shown["after"]["spec"]["initContainers"] if c["name"] == "a"]
    assert init["command"][-2:] == ["/bin/app", "--x"]
    assert {o["policy"] for o in shown["outcomes"] if o["changed"]} == {"mine"}


@pytest.fixture
def preview_command(
    registry: RunningRegistry, tmp_path: Path, ca: trustme.CA
) -> Callable[..., CompletedProcess[str]]:
    """Run `podsettle preview` on a text, beside a policy that allows look-ups at the registry."""
    manifests, workload = tmp_path / "manifests", tmp_path / "pods.yaml"
    manifests.mkdir()
    policies = yaml.safe_dump(policy_document(**image_policy(registry.host)))
    (manifests / "policy.yaml").write_text(policies)
    ca.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    env = {**os.environ, "SSL_CERT_FILE": str(tmp_path / "ca.pem")}
    command = ("preview", "--manifests", manifests, "--linger-image", "linger:1", "-o", "json")

    def run(text: str, *options: str) -> CompletedProcess[str]:
        workload.write_text(text)
        return podsettle_process(*command, *options, workload, env=env)

    return run


async def test_preview_looks_up_more_images_than_one_pod_may_have(
    registry: RunningRegistry, new_lookup: NewLookup, preview_command: Callable[..., Any]
) -> None:
    await post_preview(registry, new_lookup(), many_pods(registry))
    assert len(registry.requests(path="/many/")) == 15
    preview_command(many_pods(registry), "--look-up-images")
    assert len(registry.requests(path="/many/")) == 30


def test_preview_command_sends_requests_only_with_look_up_images(
    registry: RunningRegistry, image: Image, preview_command: Callable[..., Any]
) -> None:
    registry.push("shown", "1", image)
    text, before = yaml.safe_dump(new_pod(registry)), len(registry.requests())
    silent = preview_command(text)
    assert len(registry.requests()) == before
    assert "ImageConfigUnavailable" in silent.stdout, silent.stderr
    asked = preview_command(text, "--look-up-images")
    assert len(registry.requests()) == before + 3
    (shown,) = json.loads(asked.stdout)["pods"]
    (init,) = [c for c in shown["after"]["spec"]["initContainers"] if c["name"] == "a"]
    assert init["command"][-2:] == ["/bin/app", "--x"]
    assert init["args"] == ["run", "$$(HOME)"]
