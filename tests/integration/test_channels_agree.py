"""Test that the webhook, the preview endpoint and the command line agree on every pod."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import EXAMPLES
from tests.support.process import RunningServer, podsettle, start_server
from tests.support.reviews import PODS, load_pod, patch_of, review
from webhook.core.remedies import REMEDIES

ALL = [*PODS, *sorted((EXAMPLES / "pods").glob("*.yaml"))]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with start_server(EXAMPLES, tmp_path_factory.mktemp("certs")) as found:
        yield found


@pytest.fixture(scope="module")
def by_command_line() -> dict[Path, dict[str, Any]]:
    done = podsettle("preview", "--manifests", EXAMPLES, "-o", "json", *ALL)
    assert done.returncode == 0, done.stderr
    pods = json.loads(done.stdout)["pods"]
    return dict(zip(ALL, pods, strict=True))


def test_each_remedy_is_applied_to_one_of_the_sample_pods(
    by_command_line: dict[Path, dict[str, Any]],
) -> None:
    outcomes = [o for pod in by_command_line.values() for o in pod["outcomes"]]
    assert {o["remedy"] for o in outcomes if o["changed"]} == REMEDIES.keys()


@pytest.mark.parametrize("path", ALL, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_all_channels_give_the_same_result_for_a_pod(
    path: Path, server: RunningServer, by_command_line: dict[Path, dict[str, Any]]
) -> None:
    pod = load_pod(path)
    with server.client() as client:
        webhook = client.post("/mutate", json=review(pod)).json()
        (endpoint,) = client.post("/preview", content=path.read_bytes()).json()["pods"]
    command = by_command_line[path]
    assert command == endpoint
    assert patch_of(webhook) == command["patch"]
    assert webhook["response"].get("warnings", []) == command["warnings"]
    changed = {f"{o['policy']}/{o['remedy']}" for o in command["outcomes"] if o["changed"]}
    applied = command["after"]["metadata"].get("annotations", {}).get("podsettle.dev/applied", "")
    assert set(filter(None, applied.split(","))) == changed
