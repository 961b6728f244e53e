"""The measurement of relabelling: what a kubelet asks for, and what the results have to show."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from bench.errors import BenchError
from bench.format import COUNT
from bench.measurement import Measurement
from bench.node.selinux_cases import (
    NO_HANDLER,
    SETTLED,
    SKIPS,
    UNSETTLED,
    WALKS,
    Case,
    configurations,
    outcome_of,
)
from bench.node.selinux_node import Start, parse_start
from bench.node.selinux_pods import start_request, volume_pod
from bench.node.selinux_report import (
    PAGE,
    RESULTS,
    as_json,
    as_markdown,
    from_json,
    seen_by_this_project,
    unproven,
)
from bench.node.selinux_starts import FIRST_LABELS, LATER, LATER_LABELS, row
from bench.report import fill_page
from bench.report_table import ReportTable
from tests.support.vm.image import RELEASES
from webhook.core.constants import SKIP_RELABEL_ANNOTATIONS
from webhook.node_config.crio import Mode

pytestmark = pytest.mark.lab

SKIP = dict.fromkeys(SKIP_RELABEL_ANNOTATIONS, "true")
RIGHT, WRONG = (f"system_u:object_r:{kind}:s0:c123,c456" for kind in ("container_file_t", "etc_t"))
STARTED = Start(error="", create_seconds=0.5, process_label="", written=0, nested_label=WRONG)


def request_of(**spec: Any) -> dict[str, Any]:
    pod = volume_pod("claim")
    pod["metadata"]["annotations"] = SKIP
    pod["spec"] |= spec
    return start_request(pod, {"skipping": "handler"})


def test_annotations_of_a_pod_are_those_of_its_sandbox_and_not_of_its_container() -> None:
    request = request_of()
    assert request["sandbox"]["annotations"] == SKIP
    assert request["container"]["annotations"] == {}


def test_handler_is_that_of_the_runtime_class() -> None:
    assert request_of(runtimeClassName="skipping")["handler"] == "handler"
    assert request_of()["handler"] == ""
    with pytest.raises(KeyError):
        request_of(runtimeClassName="missing")


def test_sandbox_and_container_have_the_level_of_the_pod_and_the_volume_is_to_be_relabelled() -> (
    None
):
    request = request_of()
    for part in (request["sandbox"], request["container"]):
        assert part["linux"]["security_context"]["selinux_options"] == {"level": "s0:c123,c456"}
    (mount,) = request["container"]["mounts"]
    assert mount["host_path"] == "/volumes/claim"
    assert mount["selinux_relabel"] is True


def test_label_of_the_process_is_read_from_the_status_of_the_container() -> None:
    info = json.dumps({"runtimeSpec": {"process": {"selinuxLabel": "label"}}})
    answer = {"call": "", "error": "", "create_seconds": 0.5, "status": {"info": info}}
    found = parse_start(f"{json.dumps(answer)}\n0\n{WRONG}\n")
    assert found == replace(STARTED, process_label="label")


@pytest.mark.parametrize("output", ["", "panic\n0\nlabel\n", "{}\n0\nlabel\n"])
def test_output_of_a_failed_client_is_an_error(output: str) -> None:
    with pytest.raises(BenchError, match="the start of a container printed"):
        parse_start(output)


@pytest.mark.parametrize(
    ("start", "outcome"),
    [
        (STARTED, SKIPS),
        (replace(STARTED, written=1, nested_label=RIGHT), WALKS),
        (replace(STARTED, written=1), f"1 labels written, the nested file has {WRONG}"),
        (
            replace(STARTED, error=f"{NO_HANDLER} skipping: not found"),
            NO_HANDLER,
        ),
        (replace(STARTED, error="context deadline exceeded"), "context deadline exceeded"),
    ],
)
def test_nested_file_tells_skipping_from_visiting(start: Start, outcome: str) -> None:
    assert outcome_of(start) == outcome


def test_cases_have_every_mode_of_node_config() -> None:
    modes = {
        options[options.index("--mode") + 1] if "--mode" in options else Mode.HANDLER
        for release in RELEASES
        for each in configurations(release)
        if (options := each.options) is not None
    }
    assert modes == set(Mode)


def results(
    settled: float = 0.6, unsettled: float = 3.0, written: int = 0
) -> tuple[ReportTable, list[Case]]:
    table = ReportTable("starts", "")
    for kind, large in ((UNSETTLED, unsettled), (SETTLED, settled)):
        for files, seconds in ((1_000, 0.5), (100_000, large)):
            table.rows[row(kind, files)] = {
                LATER: Measurement((seconds,), "s"),
                FIRST_LABELS: Measurement((files + 2,), COUNT),
                LATER_LABELS: Measurement((written,), COUNT),
            }
    return table, [Case("drop-in", SETTLED, "v1.33.12", SKIPS, SKIPS)]


def test_remedy_is_proven_if_only_unsettled_starts_grow_with_the_number_of_files() -> None:
    assert unproven(*results()) == []


@pytest.mark.parametrize(
    ("found", "missing"),
    [
        (results(settled=0.8), f"{SETTLED}: the time grew 1.60 times"),
        (results(unsettled=1.4), f"{UNSETTLED}: the time grew 2.80 times"),
        (results(written=7), f"{UNSETTLED}: a later start wrote 7 labels"),
    ],
    ids=["settled starts grow", "unsettled starts do not", "later starts write"],
)
def test_remedy_is_unproven_if(found: tuple[ReportTable, list[Case]], missing: str) -> None:
    assert unproven(*found)[0].startswith(missing)


def test_remedy_is_unproven_if_a_pod_behaves_in_another_way_than_documented() -> None:
    table, (case,) = results()
    (found,) = unproven(table, [replace(case, outcome=WALKS)])
    assert found.endswith(f"{SETTLED}: {WALKS}: expected: {SKIPS}")


def test_figures_of_the_page_are_those_of_the_results_file() -> None:
    text = RESULTS.read_text(encoding="utf-8")
    table, cases, environment = from_json(text)
    page = PAGE.read_text(encoding="utf-8")
    assert page == fill_page(page, as_markdown(table, cases, environment), "selinux")
    assert page == fill_page(page, seen_by_this_project(table, environment), "selinux seen")
    assert text == as_json(table, cases, environment)
    assert unproven(table, cases) == []
