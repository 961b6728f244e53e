"""Tests of what podsettle would decide on a pod of a cluster."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.support.factories import policy
from webhook.core.admission.decider import OperatorSettings
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.pod import Pod, decode_pod
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.snapshot import Snapshot
from webhook.core.preview.document import Document
from webhook.core.preview.preview import Preview, preview_all
from webhook.core.reasons import Reason
from webhook.inspect.known_cluster import KnownCluster

CLASSES = {
    "windows": RuntimeClassInfo("windows", "x", {}, {"kubernetes.io/os": "windows"}),
    "large": RuntimeClassInfo("large", "x", {"memory": "1Gi"}, {"size": "large"}),
}
SETTINGS = OperatorSettings(linger_image="registry.example/linger:1")
GATE = policy("gate", remedies={"kubeletGate": {}})


def pod(**spec: Any) -> Pod:
    containers = [{"name": "main", "image": "i", "command": ["/main"]}]
    return decode_pod(msgspec.json.encode({"spec": {"containers": containers, **spec}}))


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({}, Reason.APPLIED),
        ({"runtimeClassName": "windows"}, Reason.WINDOWS_POD),
        ({"runtimeClassName": "large"}, Reason.APPLIED),
        (
            {"runtimeClassName": "large", "nodeSelector": {"size": "small"}},
            Reason.RUNTIME_CLASS_CONFLICT,
        ),
        (
            {"runtimeClassName": "large", "overhead": {"memory": "2Gi"}},
            Reason.RUNTIME_CLASS_CONFLICT,
        ),
        ({"runtimeClassName": "unknown"}, Reason.APPLIED),
    ],
)
def test_decision_on_a_new_pod_is_that_of_a_preview(spec: dict[str, Any], reason: Reason) -> None:
    """The API server adds what a RuntimeClass has before it calls podsettle."""
    view = Snapshot(policies=PolicySet([GATE]), runtime_classes=CLASSES)
    cluster = KnownCluster(view, SETTINGS)
    found = cluster.decide(pod(**spec), "ci")
    assert [each.reason for each in found.outcomes] == [reason]
    encoded = msgspec.json.encode(pod(**spec))
    document = {"apiVersion": "v1", "kind": "Pod", **msgspec.json.decode(encoded)}
    (preview,) = preview_all(Document(document), view, SETTINGS, namespace="ci")
    assert isinstance(preview, Preview)
    assert found.outcomes == preview.decided.decision.outcomes


def test_extra_policies_decide_in_place_of_those_of_their_names() -> None:
    audit = policy("gate", action="Audit", remedies={"kubeletGate": {}})
    view = Snapshot(policies=PolicySet([audit]), namespaces={}, invents_namespaces=False)
    cluster = KnownCluster(view, SETTINGS)
    (alone,) = cluster.decide(pod(), "ci").outcomes
    assert alone.reason is Reason.NAMESPACE_UNKNOWN
    (outcome,) = cluster.with_policies([GATE]).decide(pod(), "ci").outcomes
    assert outcome.changed
    assert len(cluster.with_policies([GATE]).view.policies) == 1
