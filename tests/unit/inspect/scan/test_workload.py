"""Tests of the workload that a pod belongs to."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

from webhook.cluster.manifests import read_manifests
from webhook.core.pod import OwnerReference
from webhook.inspect.cluster_flags import NO_FLAGS
from webhook.inspect.object_readers import DumpReader
from webhook.inspect.objects import LiveMetadata, WorkloadName
from webhook.inspect.scan.found_pods import PodKind, read_templates


def metadata(
    kind: str = "", name: str = "", *, api_version: str = "apps/v1", **labels: str
) -> LiveMetadata:
    owner = OwnerReference(api_version=api_version, kind=kind, name=name, controller=True)
    other = OwnerReference(kind="Node", name="n")
    owners = [other, owner] if kind else None
    labels = {key.replace("_", "-"): value for key, value in labels.items()}
    return LiveMetadata(name="pod-1", namespace="ci", labels=labels, owner_references=owners)


def test_workload_is_the_controller_and_has_a_command_if_kubectl_can_restart_it() -> None:
    for owned, title, can_restart in (
        (metadata("ReplicaSet", "web-5d59", pod_template_hash="5d59"), "Deployment/web", True),
        (metadata("ReplicaSet", "web-5d59"), "ReplicaSet/web-5d59", False),
        (metadata("ReplicaSet", "web-5d", pod_template_hash="7c9f"), "ReplicaSet/web-5d", False),
        (metadata("StatefulSet", "db"), "StatefulSet/db", True),
        (metadata("DaemonSet", "agent"), "DaemonSet/agent", True),
        (metadata("StatefulSet", "db", api_version="apps.kruise.io/v1"), "StatefulSet/db", False),
        (metadata("StatefulSet", "x;touch /tmp/x #"), "StatefulSet/x;touch /tmp/x #", False),
        (metadata("StatefulSet", "x\n"), "StatefulSet/x\n", False),
        (metadata("Job", "nightly"), "Job/nightly", False),
        (metadata("TaskRun", "build"), "TaskRun/build", False),
        (metadata(), "Pod/pod-1", False),
        (metadata("Deployment", "flink"), "Pod/pod-1", False),
        (metadata("Deployment", "web", api_version="x.example/v1"), "Deployment/web", False),
        (metadata("Pod", "spark-driver", api_version="v1"), "Pod/pod-1", False),
        (metadata("Node", "w1", api_version="v1"), "Pod/pod-1", False),
    ):
        workload = owned.workload
        assert workload.title == title
        command = f"kubectl -n ci rollout restart {title.lower()}" if can_restart else ""
        assert (title, NO_FLAGS.command(workload.rollout_command)) == (title, command)


async def test_next_pods_have_the_templates_of_a_dump() -> None:
    def deployment(namespace: str, **labels: str) -> dict[str, Any]:
        pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main"}]}}
        metadata = {"name": "web", "namespace": namespace}
        kind = {"apiVersion": "apps/v1", "kind": "Deployment"}
        return {**kind, "metadata": metadata, "spec": {"template": pod}}

    items = [deployment("shop", app="other"), {"kind": "Deployment"}, deployment("ci", app="web")]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    reader = DumpReader(read_manifests([Path("-")], BytesIO(text.encode())))
    web = WorkloadName("Deployment", "web", "ci", "apps")
    others = [web._replace(name="api"), web._replace(group="apps.kruise.io")]
    kinds = [PodKind("ci", each, frozenset(), b"{}") for each in (web, *others)]
    await read_templates(reader, kinds)
    assert [each.has_template for each in kinds] == [True, False, False]
    assert (kinds[0].pod.labels or {})["app"] == "web"
