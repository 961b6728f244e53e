"""SettlePolicy objects and their CRD at a real API server."""

from __future__ import annotations

from typing import Any

import yaml

from tests.support.kube.cluster import KubeCluster
from tests.support.kube.custom_resources import await_crd, create_crd
from tests.support.paths import CRD
from webhook.core.policy.crd import CRD_NAME

POLICIES = "/apis/podsettle.dev/v1alpha1/settlepolicies"


def install_crd(cluster: KubeCluster, schema: dict[str, Any] | None = None) -> None:
    """Create the CRD, with another schema if one is given, and wait until it can be used."""
    crd = yaml.safe_load(CRD.read_text())
    if schema is not None:
        crd["spec"]["versions"][0]["schema"] = schema
    create_crd(cluster, crd)


def apply_crd(cluster: KubeCluster) -> None:
    """Create the CRD in a cluster that other modules share, and may have created it in."""
    applied = cluster.kubectl("apply", "--server-side", "-f", CRD)
    assert (applied.returncode, applied.stderr) == (0, "")
    await_crd(cluster, CRD_NAME)
