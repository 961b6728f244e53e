"""Fixtures: one API server with podsettle's webhook and native policies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.engines import Engines, running_engines
from tests.support.kube.cluster import KubeCluster
from tests.support.native_policies import FLAGS
from tools.kube_versions import server_minor

# Kubernetes 1.33 and earlier have no API that the exported policies could use.
collect_ignore_glob = [] if server_minor() >= 34 else ["test_*.py"]


@pytest.fixture(scope="session")
def native_cluster() -> Iterator[KubeCluster]:
    with KubeCluster.start(*FLAGS) as started:
        yield started


@pytest.fixture(scope="session")
def engines(
    native_cluster: KubeCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engines]:
    manifests, certs = (tmp_path_factory.mktemp(name) for name in ("manifests", "certs"))
    with running_engines(native_cluster, manifests, certs) as started:
        yield started
