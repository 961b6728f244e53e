"""The real kubectl applies a file twice: what the pages say about pods and workloads."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest
import yaml

from tests.support.e2e_pods import simple_pod, wrappers
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.paths import DOCS

pytestmark = pytest.mark.slow

SERVER_SIDE = ["--server-side", "--field-manager=ci"]


@pytest.fixture
def namespace(settling: KubeCluster) -> str:
    return settling.namespace("apply-")


def written(directory: Path, document: Json) -> Path:
    path = directory / "object.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def named_pod(namespace: str, **annotations: str) -> Json:
    document = simple_pod(f"build-{uuid.uuid4().hex[:8]}", namespace)
    document["metadata"]["annotations"] = annotations
    return document


def wrapped(cluster: KubeCluster, document: Json) -> bool:
    """Whether the first init container of the pod in the cluster is wrapped."""
    metadata = document["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    by_name = {
        each["name"]: each for each in cluster.request("GET", path).body["spec"]["initContainers"]
    }
    return wrappers(by_name["prepare"]) == 1


@pytest.mark.parametrize("flags", [[], SERVER_SIDE], ids=["client-side", "server-side"])
def test_second_apply_of_a_wrapped_pod_is_refused_and_a_replacement_is_not(
    settling: KubeCluster, namespace: str, tmp_path: Path, flags: list[str]
) -> None:
    pod = named_pod(namespace)
    path = written(tmp_path, pod)
    first = settling.kubectl("apply", *flags, "-f", path)
    assert first.returncode == 0, first.stderr
    assert wrapped(settling, pod)
    second = settling.kubectl("apply", *flags, "-f", path)
    assert second.returncode == 1
    page = (DOCS / "explain.md").read_text()
    (quoted,) = re.findall(r'^The Pod "build" is invalid: (.*) …$', page, re.M)
    assert quoted in second.stderr.replace("* spec", "spec")
    replaced = settling.kubectl("replace", "--force", "-f", path)
    assert replaced.returncode == 0, replaced.stderr
    assert wrapped(settling, pod)


def test_pod_that_has_opted_out_can_be_applied_again(
    settling: KubeCluster, namespace: str, tmp_path: Path
) -> None:
    pod = named_pod(namespace, **{"podsettle.dev/skip": "true"})
    path = written(tmp_path, pod)
    for said in ("created", "unchanged"):
        applied = settling.kubectl("apply", "-f", path)
        assert applied.stdout.strip().endswith(said), applied.stderr
    assert not wrapped(settling, pod)
