"""Native policies on a real API server, in force or not."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tests.support.e2e_pods import simple_pod
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.waiting import await_that
from tools.kube_versions import server_minor
from webhook.core.export.native_policies import API_VERSIONS

API_VERSION = "v1" if server_minor() >= API_VERSIONS["v1"].minor else "v1beta1"
"""The API of MutatingAdmissionPolicies that the chosen API server has."""
FLAGS = (
    []
    if API_VERSION == "v1"
    else [
        "--feature-gates=MutatingAdmissionPolicy=true",
        f"--runtime-config=admissionregistration.k8s.io/{API_VERSION}=true",
    ]
)
"""The flags without which the API server has no such API."""
_GROUP = "admissionregistration.k8s.io"


@contextmanager
def in_force(cluster: KubeCluster, documents: Iterable[Json]) -> Iterator[None]:
    """Create native policies and their bindings, and delete them at the end of the block.

    The API server learns of objects of one kind in the order of their creation. So the
    MutatingAdmissionPolicies are in force once a last one is. It says nothing about others.
    """
    name = f"test-{uuid.uuid4().hex[:10]}"
    written = [*documents, *_probe(name)]
    for document in written:
        cluster.create(_path(document), document)
    await_that(lambda: _is_probed(cluster, name), "the native policies are in force")
    try:
        yield
    finally:
        for document in written:
            cluster.request("DELETE", f"{_path(document)}/{document['metadata']['name']}")
        await_that(lambda: not _is_probed(cluster, name), "the native policies are gone")


def _path(document: Json) -> str:
    plural = re.sub("y$", "ie", document["kind"].lower())
    return f"/apis/{document['apiVersion']}/{plural}s"


def _probe(name: str) -> Iterator[Json]:
    """Yield a policy that annotates one pod, and its binding."""
    add = f'JSONPatch{{op: "add", path: "/metadata/annotations", value: {{"{name}": "x"}}}}'
    head: Json = {"apiVersion": f"{_GROUP}/{API_VERSION}", "metadata": {"name": name}}
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    yield head | {
        "kind": "MutatingAdmissionPolicy",
        "spec": {
            "matchConstraints": {
                "resourceRules": [rule],
                "objectSelector": {"matchLabels": {name: "x"}},
            },
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": f"[{add}]"}}],
        },
    }
    yield head | {"kind": "MutatingAdmissionPolicyBinding", "spec": {"policyName": name}}


def _is_probed(cluster: KubeCluster, name: str) -> bool:
    pod = simple_pod("probe")
    pod["metadata"]["labels"] = {name: "x"}
    answer = cluster.create_pod(pod, dry_run=True)
    return name in answer.body.get("metadata", {}).get("annotations", {})
