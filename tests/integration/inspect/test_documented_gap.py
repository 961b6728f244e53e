"""The command of docs/slow-umount.md that finds the gap between containers without podsettle."""

from __future__ import annotations

import json
import shlex
import subprocess
from typing import Any

import pytest

from tests.support.markdown import Page
from tests.support.paths import DOCS

# The times of the report, whose init container ended at 14:25:02.
ENDED = {"terminated": {"finishedAt": "2023-12-28T14:25:02Z"}}
LATE, SOON = "2023-12-28T14:40:23Z", "2023-12-28T14:25:05Z"


def status(state: str, began: str = LATE, restarts: int = 0, init: Any = ENDED) -> dict[str, Any]:
    container = {"state": {state: {"startedAt": began}}, "restartCount": restarts}
    own = {"initContainerStatuses": [{"state": init}]} if init else {}
    return {**own, "containerStatuses": [container]}


STATUSES = {
    "stuck": status("running"),
    "stuck-and-ended": status("terminated"),
    "soon": status("running", SOON),
    "restarted": status("running", restarts=1),
    "without-init": status("running", init=None),
    "waiting": {
        "initContainerStatuses": [{"state": {"running": {"startedAt": SOON}}}],
        "containerStatuses": [{"state": {"waiting": {}}, "restartCount": 0}],
    },
    "new": {},
}


@pytest.mark.needs("jq")
def test_gap_between_containers_is_found_in_the_pod_status() -> None:
    text = Page(DOCS / "slow-umount.md").text
    (program,) = (line.partition("| jq -r ")[2] for line in text.splitlines() if "| jq -r" in line)
    pods = [
        {"metadata": {"namespace": "ci", "name": name}, "status": each}
        for name, each in STATUSES.items()
    ]
    done = subprocess.run(
        ["jq", "-r", *shlex.split(program)],
        input=json.dumps({"items": pods}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["921 s ci/stuck", "921 s ci/stuck-and-ended"]
