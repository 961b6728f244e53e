"""Tests that a preview sets what the API server's RuntimeClass plugin sets before webhooks."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.support.e2e_pods import simple_pod
from tests.support.factories import SETTINGS, policy, view
from tests.support.kube.cluster import Json, KubeCluster
from webhook.core.preview.document import Document
from webhook.core.preview.preview import Preview, preview_all
from webhook.core.preview.runtime_class_fields import class_fields, with_fields
from webhook.core.reasons import Reason

pytestmark = pytest.mark.slow

CLASSES, PODS = 20, 15
FIELDS = ("nodeSelector", "tolerations", "overhead")
# With them in the pod, the plugin DefaultTolerationSeconds adds nothing.
DEFAULTS: list[Json] = [
    {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute",
     "tolerationSeconds": 300}
    for taint in ("not-ready", "unreachable")
]  # fmt: skip


def some_selector(choose: random.Random) -> Json:
    keys = choose.sample(["disk", "kubernetes.io/os", "pool"], choose.randint(0, 2))
    return {key: choose.choice(["a", "windows"]) for key in keys}


def some_tolerations(choose: random.Random) -> list[Json]:
    return [some_toleration(choose) for _ in range(choose.randint(0, 3))]


def some_toleration(choose: random.Random) -> Json:
    toleration: Json = {}
    key = choose.choice(["", "a", "b"])
    if key:
        toleration["key"] = key
    operator = choose.choice(["", "Equal", "Exists"]) if key else "Exists"
    if operator:
        toleration["operator"] = operator
    if operator != "Exists" and choose.random() < 0.7:
        toleration["value"] = choose.choice(["x", "y"])
    effect = choose.choice(["", "NoSchedule", "NoExecute"])
    if effect:
        toleration["effect"] = effect
    if effect == "NoExecute" and choose.random() < 0.6:
        toleration["tolerationSeconds"] = choose.choice([10, 20])
    return toleration


def some_overhead(choose: random.Random) -> Json:
    return choose.choice([{}, {}, {"cpu": "250m"}, {"cpu": "250m", "memory": "16Mi"}])


@pytest.fixture(scope="module")
def classes(cluster: KubeCluster) -> Iterator[list[Json]]:
    choose = random.Random(7)
    made = []
    for number in range(CLASSES):
        document: Json = {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": f"previewed-{number}"},
            "handler": "x",
        }
        if overhead := some_overhead(choose):
            document["overhead"] = {"podFixed": overhead}
        scheduling = {
            "nodeSelector": some_selector(choose),
            "tolerations": some_tolerations(choose),
        }
        if choose.random() < 0.9:
            document["scheduling"] = {key: value for key, value in scheduling.items() if value}
        made.append(cluster.create("/apis/node.k8s.io/v1/runtimeclasses", document))
    yield made
    for each in made:
        path = f"/apis/node.k8s.io/v1/runtimeclasses/{each['metadata']['name']}"
        cluster.request("DELETE", path)


def some_pod(choose: random.Random, class_name: str) -> Json:
    pod = simple_pod("previewed")
    spec: Json = {
        "runtimeClassName": class_name,
        "tolerations": [*DEFAULTS, *some_tolerations(choose)],
    }
    if selector := some_selector(choose):
        spec["nodeSelector"] = selector
    if (overhead := some_overhead(choose)) and choose.random() < 0.5:
        spec["overhead"] = overhead
    return {**pod, "spec": {**pod["spec"], **spec}}


def shown(pod: Any) -> Json:
    spec = pod["spec"]
    return {key: spec[key] for key in FIELDS if spec.get(key)}


def test_preview_has_the_fields_that_the_api_server_sets(
    cluster: KubeCluster, classes: list[Json]
) -> None:
    choose = random.Random(11)
    seen = view(policy(), classes=classes)
    refused = changed = 0
    for each in classes:
        for _ in range(PODS):
            pod = some_pod(choose, each["metadata"]["name"])
            status, admitted, _ = cluster.create_pod(pod, dry_run=True)
            (found,) = preview_all(Document(pod), seen, SETTINGS)
            assert isinstance(found, Preview)
            case = json.dumps([each, pod, admitted])
            if status == 403:
                refused += 1
                (outcome,) = found.decided.decision.outcomes
                assert outcome.reason == Reason.RUNTIME_CLASS_CONFLICT, case
                assert outcome.message.startswith("the API server refuses the pod: "), case
                assert found.operations == (), case
                continue
            assert status == 201, case
            assert found.decided.decision.outcomes[0].reason != Reason.RUNTIME_CLASS_CONFLICT, case
            assert shown(found.workload.pod) == shown(found.after) == shown(admitted), case
            changed += shown(pod) != shown(admitted)
            # The server's previews have the pod as JSON.
            raw = msgspec.Raw(msgspec.json.encode(pod))
            fields = class_fields(raw, seen.runtime_classes).spec
            shown_pod = json.loads(msgspec.json.encode(with_fields(raw, fields)))
            assert shown_pod == found.workload.pod, case
    assert refused > 20
    assert changed > 100
