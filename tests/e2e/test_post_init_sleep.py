"""Tests of postInitSleep for every container of every fixture pod, on a real API server."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.data.expected_outcomes import HELPER, OUTCOMES, SHELL, WRAPPED
from tests.support.e2e_pods import fresh, init_names, normal
from tests.support.factories import LINGER, in_shell, node, policy_document
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.kube.fixtures import prepare_for_fixture_pods
from tests.support.registered_webhook import podsettle_called_by
from tests.support.reviews import PODS, load_pod
from tools.kube_versions import chosen, server_minor

DELIVERIES = ("Auto", "Binary", "ImageVolume")
MOUNTED = ("Auto", "ImageVolume") if server_minor() >= 36 else ("ImageVolume",)
"""Where the helper comes in an image volume. Auto takes one only if no node can lack them."""
LABEL = "test-delivery"
BROUGHT = "podsettle-linger"


def _policy(delivery: str) -> Json:
    chosen = {"when": "Always", "initContainers": ["*"], "containers": ["*"]}
    return policy_document(
        delivery.lower(),
        podSelector={"matchLabels": {LABEL: delivery}},
        remedies={"postInitSleep": {**chosen, "delivery": delivery}},
    )


def _node() -> Json:
    """One that every pod could land on, and that mounts image volumes if its kubelet can."""
    labels: dict[str, str] = {}
    for path in PODS:
        labels |= load_pod(path)["spec"].get("nodeSelector", {})
    labels["kubernetes.io/os"] = "linux"
    return {"apiVersion": "v1", "kind": "Node"} | node(
        "worker", "containerd://2.1.5", f"v{chosen()}.0", labels
    )


@pytest.fixture(scope="module")
def settling(
    cluster: KubeCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KubeCluster]:
    prepare_for_fixture_pods(cluster)
    directory = tmp_path_factory.mktemp("podsettle")
    documents = [*map(_policy, DELIVERIES), _node()]
    labels = {LABEL: "Auto"}
    with podsettle_called_by(cluster, directory, documents=documents, labels=labels):
        yield cluster


def submit(cluster: KubeCluster, pod: Json) -> tuple[Json, dict[str, str]]:
    """The pod as the API server would keep it, and the reason of each container."""
    identifier = str(uuid.uuid4())
    status, created, _ = cluster.create_pod(pod, dry_run=True, headers={"Audit-ID": identifier})
    assert status == 201, created
    said = cluster.audit_event(identifier)["annotations"]
    # Of two calls each key keeps what came first: a second one may add that it skips what the first
    # one did.
    texts = " ".join(said.get(f"pods.podsettle.dev/{key}", "") for key in ("skipped", "applied"))
    found = re.findall(r"(?:\[([^\]]+)\])?=?\b([A-Z]\w+)(?: |$)", texts)
    return created, dict(found)


def _labelled(path: Path, delivery: str) -> Json:
    pod = load_pod(path)
    pod["metadata"].setdefault("labels", {})[LABEL] = delivery
    return fresh(pod) if "name" in pod["metadata"] else pod


def outcomes_of(path: Path, delivery: str) -> Mapping[str, str]:
    """What happens to each container. An API server before 1.35 drops image volumes."""
    outcomes = OUTCOMES[path.stem]
    if delivery != "ImageVolume" or server_minor() >= 35:
        return outcomes
    return {c: "ServerTooOld" if how in WRAPPED else how for c, how in outcomes.items()}


def _containers(pod: Json) -> dict[str, Json]:
    every = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
    return {each["name"]: each for each in every}


def _expected(how: str | None, command: list[str] | None, delivery: str) -> list[str] | None:
    if how == SHELL and delivery == "Auto":
        return in_shell(command or [], sleep_ms=10, min_lifetime_ms=500)
    return [*LINGER, *(command or [])] if how in WRAPPED else command


def test_expected_outcomes_cover_every_pod_and_container() -> None:
    assert set(OUTCOMES) == {path.stem for path in PODS}
    for path in PODS:
        if "" not in OUTCOMES[path.stem]:
            assert set(OUTCOMES[path.stem]) == set(_containers(load_pod(path)))


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("path", PODS, ids=lambda path: path.stem)
def test_every_container_is_wrapped_or_has_a_reason_and_the_copy_of_its_pod_is_unchanged(
    path: Path, delivery: str, settling: KubeCluster
) -> None:
    pod, outcomes = _labelled(path, delivery), outcomes_of(path, delivery)
    created, said = submit(settling, pod)
    assert said == {c: "Applied" if how in WRAPPED else how for c, how in outcomes.items()}
    after = _containers(created)
    for name, before in _containers(pod).items():
        wanted = _expected(outcomes.get(name), before.get("command"), delivery)
        assert after[name].get("command") == wanted, name
        assert after[name].get("args") == before.get("args"), name

    alone = (HELPER,) if delivery == "Auto" else WRAPPED
    helped = any(how in alone for how in outcomes.values())
    volumes = {each["name"]: each for each in created["spec"].get("volumes", [])}
    assert (BROUGHT in volumes) is helped
    # A runtime that a RuntimeClass names may be unable to mount an image.
    mounted = delivery in MOUNTED and (delivery != "Auto" or "runtimeClassName" not in pod["spec"])
    assert init_names(created) == [*([BROUGHT] if helped and not mounted else []), *init_names(pod)]
    if helped:
        assert ("image" if mounted else "emptyDir") in volumes[BROUGHT]

    # The output of `kubectl get -o yaml` may be stored and used to create the pod again.
    kept = ("labels", "annotations", "namespace", "ownerReferences", "finalizers")
    metadata = {key: value for key, value in created["metadata"].items() if key in kept}
    again, said = submit(settling, fresh({**created, "metadata": metadata}))
    assert normal(again)["spec"] == normal(created)["spec"]
    assert again["metadata"].get("annotations") == created["metadata"].get("annotations")
    expected = {c: "AlreadySettled" if how in WRAPPED else how for c, how in outcomes.items()}
    assert {name: reason for name, reason in said.items() if name != BROUGHT} == expected
