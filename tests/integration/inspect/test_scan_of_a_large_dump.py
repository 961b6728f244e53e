"""`podsettle scan` of a dump that is larger than the memory that a scan may take."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.long_forms import IS_LONG
from tests.support.measured_command import measured
from tests.support.planted_symptoms import LOOK_ALIKES, PLANTS, dump

pytestmark = pytest.mark.slow

COPIES, COPY_BYTES = 50_000 if IS_LONG else 20_000, 9_000
NAMESPACES = [f"team-{number}" for number in range(30)]
"""Each of them has every planted pod. Of more pods, a scan would not look up the events."""
MAX_MEMORY_KIB = 150 * 1024
OF_A_NAMESPACE = ("Event", "Namespace", "Pod")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A List as `kubectl get -o json` prints it."""
    now = datetime(2026, 11, 22, 10, tzinfo=UTC)
    document = dump(NAMESPACES[0], now)
    for namespace in NAMESPACES[1:]:
        items = dump(namespace, now)["items"]
        document["items"] += [each for each in items if each["kind"] in OF_A_NAMESPACE]
    first, *_ = (each for each in document["items"] if each["kind"] == "Pod")
    ordinary = {**first, "status": {"phase": "Running"}}
    annotations = {"text": "x" * COPY_BYTES}
    # Without a uid, they are not the same pod.
    ordinary["metadata"] = {"name": "copy", "namespace": NAMESPACES[0], "annotations": annotations}
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
def test_dump_larger_than_memory_has_every_planted_symptom_and_no_other(
    large: Path, tmp_path: Path, from_pipe: bool
) -> None:
    assert large.stat().st_size > MAX_MEMORY_KIB * 1024
    path, stdin = ("-", large) if from_pipe else (str(large), None)
    arguments = ("scan", "--manifests", path, "-o", "json")
    scanned = measured(None, tmp_path, *arguments, stdin=stdin)
    report = json.loads(scanned.output)
    assert report["pods"] == len(NAMESPACES) * (len(PLANTS) + len(LOOK_ALIKES)) + COPIES
    found = Counter(
        (symptom["id"], finding["namespace"], finding["certainty"])
        for symptom in report["symptoms"]
        for finding in symptom["findings"]
        for _ in range(finding["count"])
    )
    assert found == Counter(
        (plant.symptom, namespace, plant.certainty) for plant in PLANTS for namespace in NAMESPACES
    )
    assert scanned.peak_kib < MAX_MEMORY_KIB
