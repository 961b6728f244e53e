"""SettlePolicy objects and their CRD at a real API server."""

from __future__ import annotations

import time
from typing import Any

import yaml

from tests.support.kube.cluster import KubeCluster
from tests.support.paths import CRD

POLICIES = "/apis/podsettle.dev/v1alpha1/settlepolicies"


def install_crd(cluster: KubeCluster, schema: dict[str, Any] | None = None) -> None:
    """Create the CRD, with another schema if one is given, and wait until it is served."""
    crd = yaml.safe_load(CRD.read_text())
    if schema is not None:
        crd["spec"]["versions"][0]["schema"] = schema
    cluster.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    deadline = time.monotonic() + 30
    while cluster.request("GET", POLICIES).status != 200:
        assert time.monotonic() < deadline, "the CRD is not served"


def policy_object(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "podsettle.dev/v1alpha1",
        "kind": "SettlePolicy",
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "remedies": {"postInitSleep": {}}} | spec,
    }
