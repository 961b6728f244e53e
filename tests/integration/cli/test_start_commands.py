"""Tests of the commands in the start message of `podsettle serve`: they run as they are printed."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.paths import EXAMPLES
from tests.support.process import RunningServer, start_server
from tests.support.waiting import TIMEOUT_SECONDS

pytestmark = pytest.mark.needs("curl")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with start_server(EXAMPLES, tmp_path_factory.mktemp("certs")) as running:
        running.await_previews()
        yield running


def run(server: RunningServer, name: str, *, pod: Path | None = None) -> str:
    """Run a command of the start message, and return what a terminal shows."""
    found = re.search(rf"^  {name} +(curl .+\\\n.+)$", server.log.read_text(), re.MULTILINE)
    assert found, server.log.read_text()
    command = found[1]
    if pod is not None:
        command = re.sub(r"@\S+", f"@{pod}", command, count=1)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_preview_command_prints_the_summary_and_every_outcome(server: RunningServer) -> None:
    summary, rest = run(server, "preview").split("\n", 1)
    assert "prepare and place-scripts are kept alive" in summary
    outcomes = json.loads(f"{{{dedent(rest).rstrip().rstrip(',')}}}")["outcomes"]
    assert [(each["reason"], each["remedy"], each["container"]) for each in outcomes] == [
        ("Applied", "postInitSleep", "prepare"),
        ("Applied", "postInitSleep", "place-scripts"),
        ("NoPersistentVolume", "skipSELinuxRelabel", ""),
    ]


def test_preview_command_prints_an_error_of_the_server(
    server: RunningServer, tmp_path: Path
) -> None:
    pod = tmp_path / "pod.yaml"
    pod.write_text("kind: [Pod\n")
    assert '"detail": "body:2' in run(server, "preview", pod=pod)


def test_webhook_command_prints_the_answer_to_a_review(server: RunningServer) -> None:
    answer = json.loads(run(server, "webhook"))
    assert answer["response"]["allowed"]
    assert answer["response"]["patchType"] == "JSONPatch"
