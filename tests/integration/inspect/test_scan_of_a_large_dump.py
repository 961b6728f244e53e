"""`podsettle scan` of a dump that is larger than the memory that a scan may take."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.measured_command import measured
from tests.support.planted_symptoms import LOOK_ALIKES, PLANTS, dump

pytestmark = pytest.mark.slow

COPIES, COPY_BYTES = 20_000, 9_000
MAX_MEMORY_KIB = 150 * 1024


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A List as `kubectl get -o json` prints it."""
    document = dump("ci", datetime(2026, 11, 22, 10, tzinfo=UTC))
    first, *_ = (each for each in document["items"] if each["kind"] == "Pod")
    ordinary = {**first, "status": {"phase": "Running"}}
    annotations = {"text": "x" * COPY_BYTES}
    ordinary["metadata"] = {**first["metadata"], "name": "copy", "annotations": annotations}
    document |= {"items": [*document["items"], ordinary], "metadata": {"resourceVersion": ""}}
    members = sorted(document.items())
    begin, copy, end = json.dumps(dict(members), indent=4).rpartition(
        '        {\n            "apiVersion"'
    )
    item, between = (copy + end).rsplit("\n        }", 1)
    path = tmp_path_factory.mktemp("dump") / "dump.json"
    with path.open("w") as file:
        file.write(begin)
        file.write(",\n".join([f"{item}\n        }}"] * COPIES))
        file.write(f"{between}\n")
    return path


@pytest.mark.parametrize("from_pipe", [False, True])
def test_dump_larger_than_memory_is_scanned(large: Path, tmp_path: Path, from_pipe: bool) -> None:
    assert large.stat().st_size > MAX_MEMORY_KIB * 1024
    path, stdin = ("-", large) if from_pipe else (str(large), None)
    arguments = ("scan", "--manifests", path, "-o", "json")
    scanned = measured(None, tmp_path, *arguments, stdin=stdin)
    report = json.loads(scanned.output)
    assert report["pods"] == len(PLANTS) + len(LOOK_ALIKES) + COPIES
    found = {
        each["id"]: sum(one["count"] for one in each["findings"]) for each in report["symptoms"]
    }
    for symptom, count in found.items():
        assert count == sum(plant.symptom == symptom for plant in PLANTS)
    assert scanned.peak_kib < MAX_MEMORY_KIB
