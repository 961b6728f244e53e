"""Tests of the next pod of a workload: a running pod without what was added to it."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from tests.support.factories import container, policy
from tests.support.remedy_settings import FULL_POD, SETTINGS_OF_A_CHANGE
from webhook.core.admission.decider import OperatorSettings
from webhook.core.cluster.nodes import Node, Nodes
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.constants import (
    ANNOTATION_MIRROR,
    ANNOTATION_START_GATE,
    SKIP_RELABEL_ANNOTATIONS,
)
from webhook.core.decision_input import facts_of
from webhook.core.defects.versions import Version
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.snapshot import Snapshot
from webhook.core.preview.document import Document
from webhook.core.preview.preview import Preview, preview_all
from webhook.core.remedies import REMEDIES
from webhook.inspect.next_pod import next_pod, next_pod_document
from webhook.inspect.objects import LivePod

Json = dict[str, Any]

CLASS = RuntimeClassInfo("fast", "overlay", {"memory": "1Mi"}, {"fast": "yes"})
VIEW = Snapshot(
    runtime_classes={CLASS.name: CLASS},
    nodes=Nodes([Node.read("crio", {"fast": "yes"}, "cri-o://1.33.12", "v1.35.0")]),
    server_version=Version(1, 35),
)
POD: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "build", "namespace": "ci", "labels": {"app": "ci"}},
    "spec": {
        "restartPolicy": "Never",
        "securityContext": {"fsGroup": 1000},
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "initContainers": [
            container("prepare", "/prepare", volumeMounts=[{"name": "data", "mountPath": "/data"}]),
            container("script", "sh", "-c", "true"),
        ],
        "containers": [container("main", "/main")],
    },
}


def live(document: Json) -> LivePod:
    return msgspec.json.decode(msgspec.json.encode(document), type=LivePod)


@pytest.mark.parametrize("remedies", [*([name] for name in REMEDIES), [*REMEDIES]], ids="+".join)
def test_next_pod_of_a_settled_pod_is_the_pod_before_it_was_settled(remedies: list[str]) -> None:
    chosen = policy(remedies={name: SETTINGS_OF_A_CHANGE[name] for name in remedies})
    settings = OperatorSettings(linger_image="registry.example/linger:0.2.0")
    seen = dataclasses.replace(VIEW, policies=PolicySet([chosen]))
    (preview,) = preview_all(Document(FULL_POD), seen, settings)
    assert isinstance(preview, Preview)
    changed = {outcome.remedy for outcome in preview.decided.decision.outcomes if outcome.changed}
    assert changed == set(remedies)
    settled = preview.after
    assert facts_of(live(next_pod_document(settled, {}))) == facts_of(live(FULL_POD))
    settled["spec"]["nodeName"] = "crio"
    if settled["spec"].get("runtimeClassName"):
        # The API server does this at the reinvocation of its own plugins.
        settled["spec"] |= {"overhead": CLASS.overhead, "nodeSelector": CLASS.node_selector}
    expected = facts_of(next_pod(live(FULL_POD), VIEW.runtime_classes))
    assert facts_of(next_pod(live(settled), VIEW.runtime_classes)) == expected
    assert expected.node_name is None


def test_next_pod_keeps_what_its_author_set() -> None:
    document = msgspec.json.decode(msgspec.json.encode(POD))
    own = {SKIP_RELABEL_ANNOTATIONS[0]: "false", "podsettle.dev/skip": "kubeletGate"}
    own |= {ANNOTATION_MIRROR: "x", ANNOTATION_START_GATE: "db:1"}
    document["metadata"]["annotations"] = {**own, "other": "x"}
    wrapped = ["/podsettle/linger", "--", "/prepare"]
    document["spec"]["initContainers"][0]["command"] = wrapped
    selector = {"disk": "ssd"}
    document["spec"] |= {"runtimeClassName": "fast", "nodeSelector": {"fast": "yes", **selector}}
    pod = next_pod(live(document), VIEW.runtime_classes)
    assert pod.annotations == own
    assert pod.spec.init_containers is not None
    assert pod.spec.init_containers[0].command == wrapped
    assert pod.spec.runtime_class_name == "fast"
    assert pod.spec.node_selector == selector  # The API server adds the class's again.


def test_next_pod_of_a_pod_whose_wrapper_another_webhook_has_moved_is_not_wrapped() -> None:
    document = msgspec.json.decode(msgspec.json.encode(POD))
    document["metadata"]["annotations"] = {"podsettle.dev/applied": "p/postInitSleep"}
    wrapper = ["/podsettle/linger", "--sleep", "10ms", "--min-lifetime", "500ms", "--"]
    moved = {"command": ["/vault/vault-env"], "args": [*wrapper, "/prepare", "x"]}
    document["spec"]["initContainers"][0] |= moved
    pod = next_pod(live(document), VIEW.runtime_classes)
    assert pod.spec.init_containers is not None
    assert pod.spec.init_containers[0].command == ["/vault/vault-env"]
    assert pod.spec.init_containers[0].decoded_args == ("/prepare", "x")


def managed(labels: list[str], time: str, spec: Json | None = None) -> Json:
    fields: Json = {"f:metadata": {"f:labels": {".": {}, **{f"f:{each}": {} for each in labels}}}}
    return {
        "manager": "argo",
        "operation": "Update",
        "time": time,
        "fieldsV1": {**fields, "f:spec": spec or {}},
    }


CONTAINERS: Json = {"f:containers": {}}
CREATED = managed(["app", "done"], "2026-11-22T10:00:00Z", CONTAINERS)
LATER = [
    managed(["role"], "2026-11-22T09:59:00Z"),
    managed(["role"], "2026-11-22T11:00:00Z", CONTAINERS),
]
RESIZED: Json = {"subresource": "resize", "fieldsV1": {"f:spec": CONTAINERS}}


@pytest.mark.parametrize(
    ("labels", "managed_fields", "kept"),
    [
        ({"app": "ci", "role": "primary"}, [LATER[0], CREATED, LATER[1]], {"app": "ci"}),
        ({"app": "ci", "role": "primary"}, None, {"app": "ci", "role": "primary"}),
        ({"app": "ci"}, [{"fieldsV1": "?"}], {"app": "ci"}),
        ({"app": "ci"}, "?", {"app": "ci"}),
        ({"app": "ci"}, [LATER[0]], {"app": "ci"}),
        ({"topology.kubernetes.io/zone": "a", "done": "x"}, [CREATED], {"done": "x"}),
        ({"workflows.argoproj.io/completed": "true"}, None, None),
        ({"spark-exec-inactive": "true", "airflow_executor_done": "True"}, None, None),
        (None, [CREATED], None),
        ({"app": "ci", "kubevirt.io/nodeName": "node-1"}, None, {"app": "ci"}),
        ({"app": "ci"}, [{**LATER[0], **RESIZED}, CREATED], {"app": "ci"}),
    ],
)
def test_next_pod_has_only_the_labels_that_the_pod_had_at_its_creation(
    labels: dict[str, str] | None, managed_fields: object, kept: dict[str, str] | None
) -> None:
    metadata: Json = {"name": "a", "labels": labels, "managedFields": managed_fields}
    document = {**POD, "metadata": metadata, "spec": {**POD["spec"], "nodeName": "node-1"}}
    assert next_pod(live(document), {}).labels == kept
    found = next_pod_document(document, {})["metadata"]
    assert found.get("labels") == kept
    assert "managedFields" not in found
