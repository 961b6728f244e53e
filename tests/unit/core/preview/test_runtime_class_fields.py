"""Tests of previews of pods that name a RuntimeClass."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.support.factories import (
    SETTINGS,
    Json,
    container,
    decide_pod,
    namespace,
    node,
    pod,
    policy,
    reasons,
    runtime_class,
    view,
)
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.policy.snapshot import Snapshot
from webhook.core.preview.document import Document
from webhook.core.preview.preview import Preview, preview_all
from webhook.core.preview.runtime_class_fields import ClassFields, class_fields

WINDOWS = {"kubernetes.io/os": "windows"}
SEEN = view(
    policy(),
    classes=[
        runtime_class("windows", selector=WINDOWS),
        runtime_class("kata", overhead={"cpu": "250m"}, selector={"pool": "kata"}),
        runtime_class("plain"),
    ],
)
QUICK = container("prepare", "/entrypoint")
REFUSED = "the API server refuses the pod: "


def preview(document: object, seen: Snapshot = SEEN) -> Preview:
    (found,) = preview_all(Document(document), seen, SETTINGS, namespace="ci")
    assert isinstance(found, Preview)
    return found


@pytest.mark.parametrize("kind", ["Pod", "Job"])
def test_class_that_restricts_pods_to_windows_counts(kind: str) -> None:
    new = pod(QUICK, runtimeClassName="windows")
    template = {"metadata": {}, "spec": new["spec"]}
    document = new if kind == "Pod" else {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"template": template},
    }  # fmt: skip
    found = preview(document)
    assert [outcome.reason for outcome in found.decided.decision.outcomes] == ["WindowsPod"]
    admitted = pod(QUICK, runtimeClassName="windows", nodeSelector=WINDOWS)
    assert reasons(decide_pod(admitted, SEEN)) == ["WindowsPod"]
    assert found.after["spec"]["nodeSelector"] == WINDOWS
    expected = "RuntimeClass 'windows' adds nodeSelector before the webhook is called"
    assert found.notes[0] == expected


@pytest.mark.parametrize(
    ("fields", "selector", "reason", "note"),
    [
        ({}, {"pool": "new", "zone": "a"}, "NotNeeded", "the namespace's node selector is added"),
        (
            {"nodeSelector": {"zone": "a"}},
            {"pool": "new", "zone": "a"},
            "NotNeeded",
            "the namespace's",
        ),
        ({"nodeSelector": {"pool": "old"}}, {"pool": "old"}, "Applied", "the API server refuses"),
        (
            {"runtimeClassName": "windows"},
            {"pool": "new", "zone": "a", **WINDOWS},
            "WindowsPod",
            "RuntimeClass 'windows' adds nodeSelector before the webhook is called; the",
        ),
    ],
)
@pytest.mark.parametrize("key", ["openshift.io", "scheduler.alpha.kubernetes.io"])
def test_node_selector_of_the_namespace_counts(
    key: str, fields: Json, selector: Json, reason: str, note: str
) -> None:
    project = {f"{key}/node-selector": "pool=new, zone=a"}
    look = replace(
        SEEN,
        namespaces=view(namespaces=[namespace("ci", annotations=project)]).namespaces,
        nodes=view(
            nodes=[
                node("old", labels={"pool": "old"}),
                node("new", "cri-o://1.36.0", "v1.36.0", labels={"pool": "new", "zone": "a"}),
            ]
        ).nodes,
    )
    found = preview(pod(QUICK, **fields), look)
    assert [outcome.reason for outcome in found.decided.decision.outcomes] == [reason]
    assert found.after["spec"]["nodeSelector"] == selector
    assert found.notes[0].startswith(note)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"nodeSelector": {"pool": "x"}},
         "RuntimeClass 'kata' wants nodeSelector pool=kata, the pod has x"),
        ({"overhead": {"cpu": "1"}}, "the pod's overhead is not that of RuntimeClass 'kata'"),
    ],
)  # fmt: skip
def test_pod_that_the_api_server_refuses_is_unchanged(fields: Json, message: str) -> None:
    found = preview(pod(QUICK, runtimeClassName="kata", **fields))
    assert [(o.reason, o.message) for o in found.decided.decision.outcomes] == [
        ("RuntimeClassConflict", REFUSED + message)
    ]
    assert found.operations == ()
    assert found.after == found.workload.pod


def test_running_pod_with_the_fields_of_its_class_is_unchanged() -> None:
    running = pod(
        QUICK,
        runtimeClassName="kata",
        nodeSelector={"pool": "kata"},
        overhead={"cpu": "250m"},
    )
    found = preview(running)
    assert found.workload.pod["spec"] == running["spec"]
    assert not any("RuntimeClass" in note for note in found.notes)
    assert preview(pod(QUICK, runtimeClassName="plain")).notes == preview(pod(QUICK)).notes


def test_note_says_that_a_class_is_not_known() -> None:
    found = preview(pod(QUICK, runtimeClassName="none"))
    assert found.operations
    assert found.notes[0].startswith("RuntimeClass 'none' is not known: ")


MALFORMED_FIELDS: list[Json] = [
    {"nodeSelector": []}, {"nodeSelector": {"a": 1}}, {"tolerations": {}},
    {"tolerations": [None]}, {"tolerations": [{"key": 5}]},
    {"tolerations": [{"tolerationSeconds": "x"}]}, {"overhead": 7},
    {"runtimeClassName": 5}, {"runtimeClassName": ""},
]  # fmt: skip
MALFORMED: list[Any] = [
    None, [], {}, {"spec": None}, {"spec": []},
    *({"spec": {"runtimeClassName": "all", **fields}} for fields in MALFORMED_FIELDS),
]  # fmt: skip


@pytest.mark.parametrize("document", MALFORMED)
@pytest.mark.parametrize("as_json", [True, False])
def test_malformed_pod_gets_no_fields(document: Any, as_json: bool) -> None:
    classes = {"all": RuntimeClassInfo("all", "x", {}, {"p": "q"}, tolerations=({"key": "a"},))}
    value = msgspec.Raw(msgspec.json.encode(document)) if as_json else document
    assert class_fields(value, classes) == ClassFields()


def test_thousands_of_tolerations_are_not_compared_with_each_other() -> None:
    tolerations = [{"key": f"k{number}"} for number in range(20_000)]
    added = {"operator": "Exists"}
    classes = {"all": RuntimeClassInfo("all", "x", tolerations=(added,))}
    document = {"spec": {"runtimeClassName": "all", "tolerations": tolerations}}
    assert class_fields(document, classes).spec == {"tolerations": [*tolerations, added]}
