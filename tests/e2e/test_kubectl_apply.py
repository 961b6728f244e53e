"""The real kubectl applies the file of a pod twice, and copies settled pods."""

from __future__ import annotations

import re
import uuid
from pathlib import Path

import pytest
import yaml

from tests.support.e2e_pods import create, fresh, init_names, simple_pod, wrappers
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


HELPER = "podsettle-linger"


@pytest.mark.parametrize(
    ("flags", "keeps"),
    [
        (("--image=busybox", "--keep-init-containers=false"), False),
        (("--image=busybox", "--keep-init-containers=false", "--profile=restricted"), False),
        (("--image=busybox",), True),
        # With new images alone, kubectl 1.37 ignores --keep-init-containers.
        (("--set-image=*=registry.example/app:2",), True),
    ],
)
def test_copy_by_kubectl_debug_has_the_helper(
    flags: tuple[str, ...], keeps: bool, settling: KubeCluster
) -> None:
    made = create(settling, fresh(simple_pod("app", command=["/app"])))
    assert init_names(made) == [HELPER, "prepare"]
    name = made["metadata"]["name"]
    copied = settling.kubectl("debug", name, f"--copy-to={name}-copy", "--attach=false", *flags)
    assert copied.returncode == 0, copied.stderr
    copy = settling.request("GET", f"/api/v1/namespaces/default/pods/{name}-copy").body
    assert init_names(copy) == ([HELPER, "prepare"] if keeps else [HELPER])
    before, after = (
        next(each for each in pod["spec"]["containers"] if each["name"] == "main")
        for pod in (made, copy)
    )
    assert after["command"] == before["command"]
    assert copy["spec"]["initContainers"][0]["args"] == ["install", "/podsettle/linger"]
