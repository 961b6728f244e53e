"""Explanations name the symptoms that a scan finds in a pod, and no others."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.support import planted_symptoms
from tests.support.explanations import explained, manifests
from tests.support.planted_symptoms import LOOK_ALIKES, PLANTS, Json, Plant, PlantedEvent
from webhook.inspect.explain.report import Explanation
from webhook.inspect.findings import Finding
from webhook.inspect.known_cluster import KnownCluster
from webhook.inspect.object_readers import DumpReader
from webhook.inspect.scan.collect import scan

NOW = (datetime.now(UTC) - timedelta(minutes=20)).replace(microsecond=0)
DUMP: list[Json] = planted_symptoms.dump("ci", NOW)["items"]
ALL = (*PLANTS, *LOOK_ALIKES)


def known(documents: list[Json]) -> KnownCluster:
    return KnownCluster(manifests(*documents).view)


def explain(plant: Plant, documents: list[Json]) -> Explanation:
    return explained(f"pod/{plant.name}", known(documents), *documents)


def without(*kinds: str) -> list[Json]:
    return [each for each in DUMP if each["kind"] not in kinds]


def symptoms(found: Explanation) -> list[tuple[str, str]]:
    return [(each.symptom, each.certainty) for each in found.symptoms]


@pytest.mark.parametrize("missing", ["", "Event", "CertificateSigningRequest", "Node"])
def test_scan_and_explain_name_the_same_symptoms_with_the_same_certainty(missing: str) -> None:
    documents = without(missing)
    of_scan: defaultdict[str, list[Finding]] = defaultdict(list)
    asyncio.run(
        scan(
            DumpReader(manifests(*documents)),
            known(documents),
            on_finding=lambda finding: of_scan[finding.pod].append(finding),
        )
    )
    for plant in ALL:
        found = explain(plant, documents)
        expected = of_scan[plant.name]
        assert symptoms(found) == [(each.symptom, each.certainty) for each in expected], plant.name
        sentences = [sentence for each in found.symptoms for sentence in each.sentences]
        assert sentences == [each.sentence for each in expected], plant.name
        if not missing:
            planted = [(plant.symptom, plant.certainty)] if plant.certainty else []
            assert symptoms(found) == planted, plant.name


def test_what_was_not_read_is_said_with_the_symptoms_that_may_be_missing() -> None:
    early = next(each for each in PLANTS if each.name == "early")
    relabel = next(each for each in PLANTS if each.name == "relabel")
    for plant, kind, resource, symptom in (
        (early, "CertificateSigningRequest", "certificatesigningrequests", early.symptom),
        (relabel, "Event", "events", relabel.symptom),
    ):
        assert resource not in [each.what for each in explain(plant, DUMP).unknown]
        found = explain(plant, without(kind))
        assert symptom not in [each for each, _ in symptoms(found)]
        (unknown,) = (each for each in found.unknown if each.what == resource)
        assert unknown.why.startswith("the manifests contain none; symptoms that may be missing: ")
        assert symptom in unknown.why


def test_event_about_an_early_pull_ends_the_symptom_of_a_gap_but_not_that_of_another_pod() -> None:
    (plant,) = (each for each in PLANTS if each.name == "umount-unknown")
    early = PlantedEvent("Pulling", 'Pulling image "app"', "spec.containers{main}", 3, 3)
    event = replace(plant, events=(early,)).event(0, "ci", plant.name, NOW)
    shown = [(plant.symptom, "possible")]
    assert symptoms(explain(plant, DUMP)) == shown
    assert symptoms(explain(plant, [*DUMP, event])) == []
    event["involvedObject"]["name"] = "another"
    assert symptoms(explain(plant, [*DUMP, event])) == shown


def test_workload_shows_the_symptoms_of_its_pods_as_a_scan_does() -> None:
    (plant,) = (each for each in PLANTS if each.name == "relabel")
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "sample-cron-28285183", "namespace": "ci"},
        "spec": {"template": {"spec": plant.pod("ci")["spec"]}},
    }
    # Their look-alikes belong to the same Job.
    found = explained("job/sample-cron-28285183", known(DUMP), job, *DUMP)
    assert [(each.symptom, each.certainty, each.pods) for each in found.symptoms] == [
        (plant.symptom, plant.certainty, 1)
    ]


@pytest.mark.parametrize("begins_with_older", [True, False])
def test_newest_copy_of_a_pod_in_a_dump_is_explained(begins_with_older: bool) -> None:
    (plant,) = (each for each in PLANTS if each.name == "umount-unknown")
    (document,) = (each for each in DUMP if each["metadata"]["name"] == plant.name)
    older, newer = (
        {**document, "metadata": {**document["metadata"], "resourceVersion": version}}
        for version in ("9", "10")
    )
    older["status"] = {}
    copies = [older, newer] if begins_with_older else [newer, older]
    others = [each for each in DUMP if each is not document]
    assert symptoms(explain(plant, [*copies, *others])) == [(plant.symptom, plant.certainty)]
