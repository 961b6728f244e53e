"""Manifests of clusters with any number of policies and namespaces."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

from bench.reviews import Json

EXAMPLES = Path(__file__).parents[1] / "examples"

# The policy of the examples that matches the measured pod.
TEKTON: Json = {
    "apiVersion": "podsettle.dev/v1alpha1",
    "kind": "SettlePolicy",
    "metadata": {"name": "tekton-on-crio"},
    "spec": {
        "priority": 100,
        "namespaceSelector": {},
        "podSelector": {"matchExpressions": [{"key": "tekton.dev/taskRun", "operator": "Exists"}]},
        "remedies": {"postInitSleep": {}},
    },
}


def policies(count: int) -> Iterator[Json]:
    """Yield `count` policies. Only the first one matches the measured pods.

    One half of the other policies selects other namespaces by label. The other half selects every
    namespace, and other pods by label.
    """
    yield TEKTON
    for number in range(1, count):
        team = {"matchLabels": {"team": f"team-{number:05}"}}
        app = {"matchLabels": {"app.kubernetes.io/name": f"app-{number:05}"}}
        spec = {"namespaceSelector": team} if number % 2 else {"namespaceSelector": {},
                                                               "podSelector": app}  # fmt: skip
        yield {
            "apiVersion": "podsettle.dev/v1alpha1",
            "kind": "SettlePolicy",
            "metadata": {"name": f"other-{number:05}"},
            "spec": {**spec, "remedies": {"postInitSleep": {}}},
        }


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


def write_manifests(directory: Path, policy_count: int, namespace_count: int) -> Path:
    """Write manifests of a cluster to a new directory, and return it.

    The nodes and RuntimeClasses are those of the examples.
    """
    directory.mkdir(parents=True)
    (directory / "policies.yaml").write_text(_documents(policies(policy_count)))
    (directory / "namespaces.yaml").write_text(_documents(namespaces(namespace_count)))
    nodes = yaml.safe_load_all((EXAMPLES / "cluster.yaml").read_text(encoding="utf-8"))
    documents = [document for document in nodes if document["kind"] != "Namespace"]
    (directory / "nodes.yaml").write_text(_documents(documents))
    return directory


def copy_examples(directory: Path, examples: Path = EXAMPLES) -> Path:
    """Copy the examples to a new directory, and return it. They contain every remedy."""
    directory.mkdir(parents=True)
    for name in ("policies.yaml", "cluster.yaml"):
        shutil.copy(examples / name, directory)
    return directory


def _documents(documents: Iterable[Json]) -> str:
    # JSON is valid YAML, and writing JSON is much faster.
    return "".join(f"---\n{json.dumps(document)}\n" for document in documents)
