"""Tests on a real API server that native policies make the same pods as the webhook."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.api_pods import API_PODS
from tests.support.e2e_pods import normal
from tests.support.engines import PARTLY, SETS, Engines
from tests.support.kube.cluster import Json
from tests.support.long_forms import IS_LONG
from tests.support.paths import EXAMPLES
from tests.support.reviews import PODS, load_pod
from tests.support.strategies import PODS as HOSTILE_PODS
from webhook.core.preview.document import Document
from webhook.core.preview.pods_in_document import Workload, pods_of

pytestmark = pytest.mark.slow

APPLIED, SUMMARY = "podsettle.dev/applied", "podsettle.dev/summary"
SKIPPED, SETTLED = "podsettle.dev/skipped", "podsettle.dev/settled"


def example_pods() -> Iterator[tuple[str, Json]]:
    for path in sorted((EXAMPLES / "pods").glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            for found in pods_of(Document(document)):
                assert isinstance(found, Workload)
                yield path.stem, found.pod


FIXED_PODS = [*((path.stem, load_pod(path)) for path in PODS), *example_pods()]


def without_skips(pod: Json) -> Json:
    """Return a created pod without what no native policy writes.

    That is the reasons for what was left out, and the mark of a pod that the webhook changed.
    """
    made = normal(pod)
    annotations = made["metadata"].get("annotations", {})
    annotations.pop(SKIPPED, None)
    annotations.pop(SETTLED, None)
    clauses = annotations.pop(SUMMARY, "").removesuffix(".").split(";\n")
    done = [clause for clause in clauses if not re.search(r"\b(was|were) left\b", clause)]
    if any(done):
        annotations[SUMMARY] = ";\n".join(done) + "."
    if not annotations:
        made["metadata"].pop("annotations", None)
    return made


def again(pod: Json) -> Json:
    """Return a created pod as a client would create a copy of it."""
    metadata = {
        key: value
        for key, value in pod["metadata"].items()
        if key in ("labels", "annotations", "ownerReferences")
    }
    return {**pod, "metadata": {**metadata, "name": "again"}, "status": {}}


def check(engines: Engines, pod: Json, name: str) -> Json | None:
    """Check a pod in the four namespaces of a set. Return the one that native policies settled."""
    made = {engine: engines.create(pod, name, engine) for engine in ("neither", "native")}
    assert made["native"][0] == made["neither"][0], made["native"][1].get("message")
    if made["neither"][0] != 201:
        return None
    made |= {engine: engines.create(pod, name, engine) for engine in ("webhook", "both")}
    bodies = {engine: body for engine, (_, body) in made.items()}
    settled = without_skips(bodies["native"])
    if name == "classes" and lacks_first_class(bodies["webhook"]):
        assert "try-skip-volume-selinux-label.crio.io" not in annotations_of(bodies["native"])
        return None
    assert settled == without_skips(bodies["webhook"])
    both = without_skips(bodies["both"])
    if SKIPPED in bodies["both"]["metadata"].get("annotations", {}):
        # The webhook writes the whole summary again, in words for a pod that it found settled.
        for each in (both, settled):
            each["metadata"].get("annotations", {}).pop(SUMMARY, None)
    assert both == settled
    status, twice = engines.create(again(bodies["native"]), name, "native")
    assert status == 201, twice
    assert normal(twice)["spec"] == normal(bodies["native"])["spec"]
    assert annotations_of(twice) == annotations_of(bodies["native"])
    return bodies["native"]


def lacks_first_class(pod: Json) -> bool:
    """Return whether the policy classes-heavy covers a pod that cannot have its class.

    The webhook then applies the policy classes-relabel, which has another class. A native policy
    does not see whether another one could act.
    """
    labels, class_name = pod["metadata"].get("labels", {}), pod["spec"].get("runtimeClassName")
    return bool(labels.get("team") == "a" and class_name == "selinux-fix-runtime-class")


def annotations_of(pod: Json) -> Json:
    found: Json = pod["metadata"].get("annotations", {})
    return found


@pytest.mark.parametrize("name", SETS)
def test_native_policies_make_the_pods_of_the_webhook(name: str, engines: Engines) -> None:
    faults, settled = [], 0
    for stem, pod in FIXED_PODS:
        try:
            made = check(engines, pod, name)
            assert made is not None
            settled += APPLIED in annotations_of(made)
        except AssertionError as error:
            faults.append(f"{stem}: {error}")
    assert not faults, "\n\n".join(faults)
    assert settled, "without changes, nothing was compared"


def test_webhook_adds_the_remedies_that_are_not_native(engines: Engines) -> None:
    pod = load_pod(next(path for path in PODS if path.stem == "tekton-taskrun-sidecar"))
    pod["spec"]["securityContext"] = {"fsGroup": 1}
    pod["spec"]["volumes"].append({"name": "v", "persistentVolumeClaim": {"claimName": "v"}})
    mounts = pod["spec"]["containers"][0].setdefault("volumeMounts", [])
    mounts.append({"name": "v", "mountPath": "/v"})
    bodies = {each: engines.create(pod, PARTLY, each)[1] for each in ("webhook", "native", "both")}
    assert annotations_of(bodies["native"])[APPLIED] == "partly/fsGroupChangePolicy"
    applied = annotations_of(bodies["webhook"])[APPLIED]
    assert applied == "partly/fsGroupChangePolicy,partly/postInitSleep"
    assert annotations_of(bodies["both"])[APPLIED] == applied
    assert normal(bodies["both"])["spec"] == normal(bodies["webhook"])["spec"]


@settings(max_examples=500 if IS_LONG else 200, suppress_health_check=list(HealthCheck))
@given(pod=API_PODS, name=st.sampled_from(list(SETS)))
def test_native_policies_make_any_pod_of_the_webhook(
    pod: Json, name: str, engines: Engines
) -> None:
    check(engines, pod, name)


@settings(max_examples=300 if IS_LONG else 100, suppress_health_check=list(HealthCheck))
@given(pod=HOSTILE_PODS, name=st.sampled_from(list(SETS)))
def test_native_policies_deny_no_pod_of_a_hostile_client(
    pod: Json, name: str, engines: Engines
) -> None:
    check(engines, pod, name)
