"""A server without a cluster imports its HTTP client for the first image to look up.

The import takes 0.1 to 0.4 s and 9 MiB, and few policies look images up.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.factories import container, pod, policy_document
from tests.support.image_factories import image_policy
from tests.support.paths import ROOT
from tests.support.process import run
from tests.support.reviews import review

# The address is forbidden, so no request is sent.
HOST = "127.0.0.1:1"
# A new interpreter serves /mutate and /preview, with the same imports as `podsettle serve`.
SERVE = """
import asyncio, json, sys
from pathlib import Path
import webhook.cli.serve
from tests.support.server_fixtures import make_app
from webhook.cluster.manifest_files_source import ManifestsSource
import httpx

async def main():
    source = ManifestsSource(Path(sys.argv[1]))
    source.refresh()
    app = make_app(source)
    client = httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="https://podsettle", timeout=60
    )
    async with app.router.lifespan_context(app), client:
        body = json.load(sys.stdin)
        reviewed = await client.post("/mutate?timeout=30s", json=body)
        previewed = await client.post("/preview", json=body["request"]["object"])
    print(json.dumps([reviewed.json(), previewed.json(), "aiohttp" in sys.modules]))

asyncio.run(main())
"""


@pytest.mark.parametrize("lookup", ["Registry", "Never"])
def test_server_imports_its_http_client_for_the_first_image(tmp_path: Path, lookup: str) -> None:
    spec = image_policy(HOST)
    spec["imageConfig"]["lookup"] = lookup
    (tmp_path / "policy.yaml").write_text(yaml.safe_dump(policy_document(**spec)))
    sent = review(pod(containers=[container("main", image=f"{HOST}/a:1")], restartPolicy="Never"))
    done = run(sys.executable, "-c", SERVE, tmp_path, input=json.dumps(sent), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    answers: list[Any]
    *answers, is_imported = json.loads(done.stdout)
    assert is_imported is (lookup == "Registry")
    expected = "ImageConfigUnavailable" if lookup == "Registry" else "NoCommand"
    assert all(expected in json.dumps(answer) for answer in answers)


@pytest.mark.parametrize("module", ["webhook.cli.serve", "webhook.cli.preview"])
def test_command_starts_without_the_code_of_image_look_ups(module: str) -> None:
    script = f"import sys, {module}; print({{'webhook.images', 'aiohttp'}} & set(sys.modules))"
    done = run(sys.executable, "-c", script, check=True)
    assert done.stdout.strip() == "set()"
