"""podsettle beside a webhook that moves commands into the arguments of a program of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
import yaml

from tests.support.e2e_pods import create, init_names, is_called
from tests.support.factories import policy_document
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.other_webhook import start_webhook
from tests.support.process import RunningServer, start_server
from tests.support.registered_webhook import registered
from tests.support.vault_env_webhook import FROM_PATH, PROGRAM, operations_for
from tests.support.waiting import await_that

pytestmark = pytest.mark.slow

LABEL = "test-wraps"
HELPER, HELPER_PATH, MARKER = "podsettle-linger", "/podsettle/linger", ": podsettle;"
BOTH: Json = {
    "postInitSleep": {"when": "Always", "containers": ["*"]},
    "openFiles": {"soft": 4096, "initContainers": ["*"]},
}
REMEDIES: dict[str, Json] = {
    "sleep-by-helper": {"postInitSleep": {**BOTH["postInitSleep"], "delivery": "Binary"}},
    "sleep-by-shell": {"postInitSleep": BOTH["postInitSleep"]},
    "both": BOTH,
}
"""The remedies of policies, by the value of LABEL on their pods."""
GATES: Json = {"kubeletGate": {}, "startGate": {"waitFor": [{"dns": "a"}]}}


@pytest.fixture(scope="module")
def podsettle_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    manifests = tmp_path_factory.mktemp("manifests")
    documents = [
        policy_document(name, podSelector={"matchLabels": {LABEL: name}}, remedies=remedies)
        for name, remedies in {**REMEDIES, "gates": GATES}.items()
    ]
    (manifests / "all.yaml").write_text(yaml.safe_dump_all(documents))
    with start_server(manifests, tmp_path_factory.mktemp("certs")) as server:
        yield server


@pytest.fixture(scope="module", params=["IfNeeded", "Never"])
def settling(
    cluster: KubeCluster, podsettle_server: RunningServer, request: pytest.FixtureRequest
) -> Iterator[KubeCluster]:
    """The cluster with podsettle, which is called again or not."""
    cluster.namespace("default")
    url, ca = f"{podsettle_server.url}/mutate", podsettle_server.ca.read_bytes()
    with registered(cluster, "podsettle", url, ca, reinvocation_policy=request.param):
        await_that(
            lambda: is_called(cluster, labels={LABEL: "both"}), "the API server calls podsettle"
        )
        yield cluster


@pytest.fixture(scope="module", params=["IfNeeded", "Never"])
def policy_of_other(request: pytest.FixtureRequest) -> str:
    """Whether the API server calls the other webhook again."""
    return str(request.param)


@pytest.fixture(scope="module", params=["a-vault", "z-vault"])
def both_webhooks(
    settling: KubeCluster,
    policy_of_other: str,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[KubeCluster]:
    """The cluster with both. The API server calls webhooks in the order of their names."""
    with (
        start_webhook(tmp_path_factory.mktemp("other"), operations_for) as (url, ca),
        registered(settling, request.param, url, ca, reinvocation_policy=policy_of_other),
    ):
        probe = pod("none", every=True)
        await_that(
            lambda: "copy-vault-env" in init_names(create(settling, probe, dry_run=True)),
            "the API server calls the other webhook",
        )
        yield settling


def pod(remedies: str, *, every: bool) -> Json:
    secret = {"name": "SECRET", "value": "vault:secret/data/x#y"}
    program = {"image": "registry.example/app:1", "command": ["/app", "run"], "args": ["x"]}
    script = {"image": "registry.example/app:1", "command": ["sh", "-c", "exec /app"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "vault",
            "labels": {LABEL: remedies},
            "annotations": {FROM_PATH: "x"} if every else {},
        },
        "spec": {
            "restartPolicy": "Never",
            "initContainers": [
                {"name": "prepare", **program, "env": [secret]},
                {"name": "plain", **program},
            ],
            "containers": [
                {"name": "main", **program, "env": [secret]},
                {"name": "script", **script, "env": [secret]},
            ],
        },
    }


def strings_of(container: Json) -> list[str]:
    return [*container.get("command", []), *container.get("args", [])]


def wrappers(container: Json) -> int:
    """Return the number of wrappers of podsettle in a container's command and arguments."""
    strings = strings_of(container)
    helpers = sum(
        path == HELPER_PATH and option.startswith("--") for path, option in pairwise(strings)
    )
    return helpers + sum(text.startswith(MARKER) for text in strings)


@pytest.mark.parametrize("every", [False, True], ids=["secrets", "every"])
@pytest.mark.parametrize("remedies", REMEDIES)
def test_each_container_has_one_wrapper_and_starts_after_what_it_needs(
    remedies: str, every: bool, both_webhooks: KubeCluster
) -> None:
    document = pod(remedies, every=every)
    status, created, warnings = both_webhooks.create_pod(document, dry_run=True)
    assert (status, warnings) == (201, []), created
    names = init_names(created)
    assert names.count(HELPER) == 1
    spec, given = created["spec"], document["spec"]
    before = {each["name"]: each for each in [*given["initContainers"], *given["containers"]]}
    for container in [*spec["initContainers"], *spec["containers"]]:
        strings, name = strings_of(container), container["name"]
        if name in before:
            assert wrappers(container) == 1, name
            plain = strings_of(before[name])
            assert strings[-len(plain) :] == plain
    place = names.index(HELPER)
    for index, container in enumerate(spec["initContainers"]):
        strings = strings_of(container)
        if wrappers(container) and HELPER_PATH in strings:
            assert index > place, container["name"]
        if PROGRAM in strings:
            assert index > names.index("copy-vault-env"), container["name"]


@pytest.mark.parametrize("every", [False, True], ids=["secrets", "every"])
def test_pod_has_each_gate_once(every: bool, both_webhooks: KubeCluster) -> None:
    status, created, warnings = both_webhooks.create_pod(pod("gates", every=every), dry_run=True)
    assert (status, warnings) == (201, []), created
    names = init_names(created)
    assert [name for name in names if name.startswith("podsettle-")] == ["podsettle-kubelet-gate"]
