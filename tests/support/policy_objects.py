"""SettlePolicy objects and their CRD at a real API server."""

from __future__ import annotations

from typing import Any

import yaml

from tests.support.kube.cluster import KubeCluster
from tests.support.kube.custom_resources import create_crd
from tests.support.paths import CRD

POLICIES = "/apis/podsettle.dev/v1alpha1/settlepolicies"


def install_crd(cluster: KubeCluster, schema: dict[str, Any] | None = None) -> None:
    """Create the CRD, with another schema if one is given, and wait until it can be used."""
    crd = yaml.safe_load(CRD.read_text())
    if schema is not None:
        crd["spec"]["versions"][0]["schema"] = schema
    create_crd(cluster, crd)
