"""Tests of the measurement of relabelling: what a kubelet asks for, and what a start shows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from lab.report import LabError
from lab.selinux import (
    ANOTHER_LEVEL,
    FIRST,
    LATER,
    LEVEL,
    NO_HANDLER,
    NO_LEVEL,
    SETTLED,
    SKIPS,
    UNSETTLED,
    WALKS,
    WITHOUT_CLASS,
    CrioNode,
    Requests,
    Start,
    Starts,
    _measured,
    _row,
    expected_outcomes,
    parse_start,
    start_request,
    unproven,
    volume_pod,
)
from tests.support.vm.image import RELEASES
from tests.support.vm.machine import Machine
from webhook.core.constants import SKIP_RELABEL_ANNOTATIONS
from webhook.node_config.crio import Mode

pytestmark = pytest.mark.lab

SKIP = dict.fromkeys(SKIP_RELABEL_ANNOTATIONS, "true")
RIGHT, WRONG = (f"system_u:object_r:{kind}:{LEVEL}" for kind in ("container_file_t", "etc_t"))
STARTED = Start(error="", seconds=0.5, written=0, nested_label=WRONG)


def request_of(**spec: Any) -> dict[str, Any]:
    pod = volume_pod("claim", LEVEL)
    pod["metadata"]["annotations"] = SKIP
    pod["spec"] |= spec
    return start_request(pod, {"skipping": "handler"}, {})


def test_request_is_what_a_kubelet_makes_of_a_pod() -> None:
    request = request_of()
    assert request["sandbox"]["annotations"] == SKIP
    assert request["container"]["annotations"] == {}
    for part in (request["sandbox"], request["container"]):
        assert part["linux"]["security_context"]["selinux_options"] == {"level": LEVEL}
    (mount,) = request["container"]["mounts"]
    assert mount["host_path"] == "/volumes/claim"
    assert mount["selinux_relabel"] is True
    assert request["handler"] == ""
    assert request_of(runtimeClassName="skipping")["handler"] == "handler"
    with pytest.raises(KeyError):
        request_of(runtimeClassName="missing")


def test_podsettle_settles_the_pods_of_the_cases(tmp_path: Path) -> None:
    requests = Requests(tmp_path)
    annotated, with_class = set(), set()
    for name in expected_outcomes(RELEASES[0])["--mode handler"]:
        request = requests.named(name, "small")
        if SKIP.items() <= request["sandbox"]["annotations"].items():
            annotated.add(name)
        if request["handler"]:
            with_class.add(name)
    assert annotated == {SETTLED, WITHOUT_CLASS, ANOTHER_LEVEL, NO_LEVEL}
    assert with_class == {*expected_outcomes(RELEASES[0])["--mode handler"]} - {
        UNSETTLED,
        WITHOUT_CLASS,
    }


@pytest.mark.parametrize("output", ["", "panic\n0\nlabel\n", "{}\n0\nlabel\n"])
def test_output_of_a_failed_client_is_an_error(output: str) -> None:
    with pytest.raises(LabError, match="the start of a container printed"):
        parse_start(output)


def test_start_is_read_from_what_the_client_prints() -> None:
    answer = {"call": "", "error": "", "create_seconds": 0.5, "status": None}
    assert parse_start(f"{json.dumps(answer)}\n0\n{WRONG}\n") == STARTED


@pytest.mark.parametrize(
    ("start", "outcome"),
    [
        (STARTED, SKIPS),
        (replace(STARTED, written=1, nested_label=RIGHT), WALKS),
        (replace(STARTED, written=1), f"1 labels written, the nested file has {WRONG}"),
        (replace(STARTED, error=f"{NO_HANDLER} skipping: not found"), NO_HANDLER),
        (replace(STARTED, error="context deadline exceeded"), "context deadline exceeded"),
    ],
)
def test_nested_file_tells_skipping_from_visiting(start: Start, outcome: str) -> None:
    assert start.outcome == outcome


def test_cases_have_every_mode_of_node_config() -> None:
    named = " ".join(name for release in RELEASES for name in expected_outcomes(release))
    assert all(f"--mode {mode}" in named for mode in Mode)


def starts(
    settled: float = 0.6, unsettled: float = 3.0, written: int = 0
) -> dict[tuple[str, int], Starts]:
    return {
        (kind, files): {
            FIRST: [replace(STARTED, written=files + 2)],
            LATER: [replace(STARTED, seconds=seconds, written=written)],
        }
        for kind, large in ((UNSETTLED, unsettled), (SETTLED, settled))
        for files, seconds in ((1_000, 0.5), (100_000, large))
    }


def test_remedy_is_proven_if_only_unsettled_starts_grow_with_the_number_of_files() -> None:
    assert unproven(starts()) == []
    assert unproven(starts(settled=0.8)) == [f"{SETTLED}: the time grew 1.60 times"]
    assert unproven(starts(unsettled=1.4)) == [f"{UNSETTLED}: the time grew 2.80 times"]
    assert unproven(starts(written=7))[0].startswith(f"{UNSETTLED}: a later start wrote 7 labels")


class MachineWithoutSystem:
    """Answers the scripts of an experiment as a machine does that skips each volume."""

    def __init__(self, share: Path) -> None:
        self.share = share
        self.requests: list[dict[str, Any]] = []

    def run(self, script: str) -> str:
        if script.startswith("release="):
            assert "selinux = true" in (self.share / "crio.conf.d/01-selinux.conf").read_text()
            return "cri-o 1.33.12\n"
        if "uname" in script:
            return "6.1.0\nrunc version 1.1.5\n2:2.2022\nEnforcing\n"
        if "start </share/request.json" in script:
            self.requests.append(json.loads((self.share / "request.json").read_text()))
            return f"{json.dumps({'error': '', 'create_seconds': 0.5})}\n0\n{WRONG}\n"
        return ""


def test_short_measurement_starts_each_kind_of_pods_with_its_volumes(tmp_path: Path) -> None:
    machine = MachineWithoutSystem(tmp_path)
    node = CrioNode(cast(Machine, machine))
    assert node.restart("v1.33.12", "") == "cri-o 1.33.12"
    assert node.describe()["SELinux"] == "enforcing"
    measured = dict(_measured(node, Requests(tmp_path), short=True))
    assert [files for _, files in measured] == [0, 1_000, 1_000, 100_000, 100_000, 100_000]
    row = _row(SETTLED, 1_000, measured[SETTLED, 1_000])
    assert list(row)[2:6] == ["first start", "later starts", "later, no caches", "another level"]
    # Without a volume, four kinds with six starts, and one without a level.
    assert len(machine.requests) == 3 + 4 * 6 + 3
    assert sum(each["drop_caches"] for each in machine.requests) == 4 * 2
    assert node.case(machine.requests[-1]) == SKIPS
