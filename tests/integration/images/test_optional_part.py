"""Image look-ups are an optional part: a server imports them for the first image to look up."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.factories import container, pod, policy_document
from tests.support.image_factories import image_policy
from tests.support.paths import EXAMPLES, ROOT
from tests.support.reviews import review

# The address is forbidden, so no request is sent.
HOST = "127.0.0.1:1"
# A new interpreter serves /mutate and /preview, with the same imports as `podsettle serve`.
SERVE = """
import asyncio, json, sys
from pathlib import Path
import webhook.cli.serve
from tests.support.server_fixtures import make_app
from webhook.cluster.manifest_source import ManifestsSource
import httpx

async def main():
    source = ManifestsSource(Path(sys.argv[1]))
    source.refresh()
    app = make_app(source)
    client = httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="https://podsettle", timeout=60
    )
    async with app.router.lifespan_context(app), client:
        answers = []
        for body in json.load(sys.stdin):
            reviewed = await client.post("/mutate?timeout=30s", json=body)
            previewed = await client.post("/preview", json=body["request"]["object"])
            answers.append([reviewed.json()["response"], previewed.json()])
    parts = ("webhook.images", "webhook.dns_resolver", "aiohttp")
    print(json.dumps([answers, [part for part in parts if part in sys.modules]]))

asyncio.run(main())
"""


def serve(manifests: Path, *reviews: dict[str, Any]) -> tuple[list[Any], list[str]]:
    """Return the answers to reviews and previews, and the parts that the server imported."""
    done = subprocess.run(
        [sys.executable, "-c", SERVE, str(manifests)],
        input=json.dumps(reviews),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers, parts = json.loads(done.stdout)
    return answers, parts


def without_command() -> dict[str, Any]:
    return review(pod(containers=[container("main", image=f"{HOST}/a:1")], restartPolicy="Never"))


def write_policy(directory: Path, **spec: Any) -> None:
    (directory / "policy.yaml").write_text(yaml.safe_dump(policy_document(**spec)))


def test_server_without_a_look_up_policy_never_imports_image_look_ups(tmp_path: Path) -> None:
    write_policy(tmp_path, remedies={"postInitSleep": {"containers": ["*"]}})
    ((reviewed, previewed),), parts = serve(tmp_path, without_command())
    assert "NoCommand" in reviewed["auditAnnotations"]["skipped"]
    assert "NoCommand" in json.dumps(previewed)
    assert parts == []


def test_look_up_policy_that_covers_no_pod_imports_no_image_look_ups() -> None:
    sent = [json.loads(path.read_text()) for path in sorted(EXAMPLES.glob("reviews/*.json"))]
    assert any("imageConfig" in path.read_text() for path in EXAMPLES.glob("*.yaml"))
    answers, parts = serve(EXAMPLES, *sent)
    assert any("patch" in reviewed for reviewed, _ in answers)
    assert parts == []


@pytest.mark.parametrize("lookup", ["Registry", "Never"])
def test_server_imports_image_look_ups_for_the_first_image(tmp_path: Path, lookup: str) -> None:
    spec = image_policy(HOST)
    spec["imageConfig"]["lookup"] = lookup
    write_policy(tmp_path, **spec)
    ((reviewed, previewed),), parts = serve(tmp_path, without_command())
    if lookup == "Never":
        assert parts == []
        return
    assert parts == ["webhook.images", "webhook.dns_resolver", "aiohttp"]
    for answer in (reviewed, previewed):
        assert "ImageConfigUnavailable" in json.dumps(answer)


@pytest.mark.parametrize("module", ["webhook.cli", "webhook.cli.serve", "webhook.cli.preview"])
def test_command_line_starts_without_image_look_ups(module: str) -> None:
    script = f"import sys, {module}; print('webhook.images' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
