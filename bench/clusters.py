"""Clusters of any number of policies and namespaces, as manifests or on an API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import yaml

from bench.reviews import EXAMPLES, Json
from tests.support.factories import policy_document
from tests.support.kube.cluster import KubeCluster
from tests.support.live_cluster import add_node
from tests.support.policy_objects import POLICIES, install_crd

# Threads that create objects on the API server.
_WRITER_THREADS = 4


def policies(count: int) -> Iterator[Json]:
    """Yield `count` policies. Only the first one matches the measured pods.

    One half of the other policies selects other namespaces by label. The other half selects every
    namespace, and other pods by label. All have the remedy `postInitSleep`.
    """
    task_run = {"matchExpressions": [{"key": "tekton.dev/taskRun", "operator": "Exists"}]}
    yield policy_document("tekton-on-crio", priority=100, podSelector=task_run)
    for number in range(1, count):
        team = {"matchLabels": {"team": f"team-{number:05}"}}
        app = {"matchLabels": {"app.kubernetes.io/name": f"app-{number:05}"}}
        selects = {"namespaceSelector": team} if number % 2 else {"podSelector": app}
        yield policy_document(f"other-{number:05}", **selects)


def namespaces(count: int) -> Iterator[Json]:
    """Yield `count` namespaces. The first one is `ci`, the namespace of the measured pods."""
    for number in range(count):
        name = f"tenant-{number:05}" if number else "ci"
        labels = {
            "team": f"team-{number:05}",
            "environment": ("production", "staging", "test")[number % 3],
            "app.kubernetes.io/managed-by": "tenants",
            "kubernetes.io/metadata.name": name,
        }
        metadata: Json = {"name": name, "labels": labels}
        if number % 10 == 9:
            metadata["annotations"] = {"openshift.io/sa.scc.mcs": f"s0:c{number % 1000},c5"}
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def write_manifests(directory: Path, documents: Iterator[Json] | list[Json]) -> Path:
    """Write manifests to a new directory, with the nodes of the examples, and return it."""
    directory.mkdir(parents=True)
    examples = yaml.safe_load_all((EXAMPLES / "cluster.yaml").read_text(encoding="utf-8"))
    nodes = [document for document in examples if document["kind"] != "Namespace"]
    # JSON is valid YAML, and writing JSON is much faster.
    texts = (f"---\n{json.dumps(document)}\n" for document in (*documents, *nodes))
    (directory / "cluster.yaml").write_text("".join(texts))
    return directory


@contextmanager
def api_server(policy_count: int, namespace_count: int) -> Iterator[Path]:
    """Run an API server with so many policies and namespaces. Yield its kubeconfig.

    It has a node that needs the remedy of the policies.
    """
    with KubeCluster.start() as cluster:
        install_crd(cluster)
        add_node(cluster, "worker-1", "cri-o://1.33.12")
        bodies = [(POLICIES, policy) for policy in policies(policy_count)]
        bodies += [("/api/v1/namespaces", each) for each in namespaces(namespace_count)]
        with ThreadPoolExecutor(_WRITER_THREADS) as pool:
            list(pool.map(lambda path_and_body: cluster.create(*path_and_body), bodies))
        yield cluster.kubeconfig
