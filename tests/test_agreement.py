"""The webhook, the preview endpoint and the command line say the same of every pod."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process import RunningServer, podsettle, start_server
from tests.reviews import PODS, load_pod, patch_of, review

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with start_server(EXAMPLES, tmp_path_factory.mktemp("certs")) as found:
        yield found


@pytest.fixture(scope="module")
def by_command_line() -> dict[str, dict[str, Any]]:
    done = podsettle("preview", "--manifests", EXAMPLES, "-o", "json", *PODS)
    assert done.returncode == 0, done.stderr
    pods = json.loads(done.stdout)["pods"]
    return {path.stem: pod for path, pod in zip(PODS, pods, strict=True)}


@pytest.mark.parametrize("path", PODS, ids=lambda path: path.stem)
def test_every_channel_agrees(
    path: Path, server: RunningServer, by_command_line: dict[str, dict[str, Any]]
) -> None:
    pod = load_pod(path)
    with server.client() as client:
        webhook = client.post("/mutate", json=review(pod)).json()
        (endpoint,) = client.post("/preview", content=path.read_bytes()).json()["pods"]
    command = by_command_line[path.stem]
    assert command == endpoint
    assert patch_of(webhook) == command["patch"]
    assert webhook["response"].get("warnings", []) == command["warnings"]
    changed = {f"{o['policy']}/{o['remedy']}" for o in command["outcomes"] if o["changed"]}
    applied = command["after"]["metadata"].get("annotations", {}).get("podsettle.dev/applied", "")
    assert set(filter(None, applied.split(","))) == changed
