"""Copies of settled pods by `kubectl debug --copy-to`, without and with init containers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.e2e_pods import create, fresh, init_names, simple_pod
from tests.support.factories import policy_document
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.registered_webhook import podsettle_called_by

pytestmark = pytest.mark.slow

HELPER = "podsettle-linger"
REMEDIES: Json = {
    "postInitSleep": {"when": "Always", "delivery": "Binary"},
    "openFiles": {"soft": 4096, "delivery": "Binary"},
}


@pytest.fixture(scope="module")
def settling(
    cluster: KubeCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubeCluster]:
    policy = policy_document(remedies=REMEDIES)
    with podsettle_called_by(cluster, tmp_path_factory.mktemp("podsettle"), documents=[policy]):
        yield cluster


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
def test_copy_of_a_settled_pod_has_the_helper(
    flags: tuple[str, ...], keeps: bool, settling: KubeCluster
) -> None:
    made = create(settling, fresh(simple_pod("app", command=["/app"])))
    assert init_names(made) == [HELPER, "prepare"]
    name = made["metadata"]["name"]
    copied = settling.kubectl("debug", name, f"--copy-to={name}-copy", "--attach=false", *flags)
    assert copied.returncode == 0, copied.stderr
    copy = settling.request("GET", f"/api/v1/namespaces/default/pods/{name}-copy").body
    assert init_names(copy) == ([HELPER, "prepare"] if keeps else [HELPER])
    originals = {each["name"]: each for each in made["spec"]["containers"]}
    main = next(each for each in copy["spec"]["containers"] if each["name"] == "main")
    assert main["command"] == originals["main"]["command"]
    (helper,) = (each for each in copy["spec"]["initContainers"] if each["name"] == HELPER)
    assert helper["args"] == ["install", "/podsettle/linger"]
