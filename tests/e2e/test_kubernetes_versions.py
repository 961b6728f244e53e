"""Tests of docs/kubernetes-versions.md: each cell is compared with a real API server."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trustme
import yaml

from tests.data.invalid_policies import WRONG
from tests.support.e2e_pods import fresh, simple_pod
from tests.support.factories import policy_document
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.paths import CHART, DOCS
from tests.support.policy_objects import POLICIES, install_crd
from tests.support.registered_webhook import podsettle_called_by, registered
from tests.support.waiting import await_that
from tools.kube_versions import MODULES, chosen

pytestmark = pytest.mark.slow

REMEDIES: dict[str, Json] = {
    "remedy `seLinuxChangePolicy`": {"seLinuxChangePolicy": "Recursive"},
    "remedy `postInitSleep` with `delivery: ImageVolume`": {
        "postInitSleep": {"when": "Always", "delivery": "ImageVolume"}
    },
    "remedy `retryInitExit255`": {
        "retryInitExit255": {"when": "Always", "initContainers": ["prepare"]}
    },
}
VOLUME = "helper"
NEVER: Json = {
    "restartPolicy": "Never",
    "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [255]}}],
}


def table() -> dict[str, dict[str, str]]:
    """Return the cells of the page's table by row and release."""
    text = (DOCS / "kubernetes-versions.md").read_text(encoding="utf-8")
    section = text.partition("## What depends on the release")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    (_, *lines), _, *body = [[cell.strip() for cell in row] for row in rows]
    return {name: dict(zip(lines, cells, strict=True)) for name, *cells in body}


TABLE = table()


def in_volume(pod: Json) -> Any:
    return pod["spec"]["volumes"][0].get("image")


def in_init_container(pod: Json) -> Any:
    return {key: pod["spec"]["initContainers"][0].get(key) for key in NEVER}


def in_pod(pod: Json) -> Any:
    return pod["spec"]["securityContext"].get("seLinuxChangePolicy")


FIELDS: dict[str, tuple[Callable[[Json], Any], Any]] = {
    "`securityContext.seLinuxChangePolicy` of a pod": (in_pod, "Recursive"),
    "`image` of a volume": (
        in_volume,
        {"reference": "registry.example/linger:1", "pullPolicy": "IfNotPresent"},
    ),
    "`restartPolicy: Never` and `restartPolicyRules` of an init container": (
        in_init_container,
        NEVER,
    ),
}


def with_field(name: str) -> Json:
    """Return a pod that sets the field of a row."""
    pod = fresh(simple_pod("a"))
    field, value = FIELDS[name]
    if field is in_pod:
        pod["spec"]["securityContext"] = {"seLinuxChangePolicy": value}
    elif field is in_volume:
        pod["spec"]["volumes"] = [{"name": VOLUME, "image": value}]
        pod["spec"]["initContainers"][0]["volumeMounts"] = [{"name": VOLUME, "mountPath": "/v"}]
    else:
        pod["spec"]["initContainers"][0] |= value
    return pod


@pytest.fixture(scope="module")
def own() -> Iterator[KubeCluster]:
    with KubeCluster.start() as cluster:
        install_crd(cluster)
        yield cluster


@pytest.fixture(scope="module")
def settling(own: KubeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeCluster]:
    """The cluster with podsettle registered, which reads the release from the API server."""
    image = ("--linger-image", "registry.example/linger:1")
    for number, remedies in enumerate(REMEDIES.values()):
        row = {"matchLabels": {"row": str(number)}}
        own.create(POLICIES, policy_document(f"row-{number}", podSelector=row, remedies=remedies))
    probe = {"matchLabels": {"row": "probe"}}
    own.create(POLICIES, policy_document("probe", podSelector=probe, remedies={"kubeletGate": {}}))
    directory = tmp_path_factory.mktemp("podsettle")
    with podsettle_called_by(own, directory, *image, labels={"row": "probe"}):
        yield own


def test_table_has_a_column_for_each_release_and_a_row_for_each_test() -> None:
    rows = {*FIELDS, *REMEDIES, "match conditions of a webhook", "validation rules of the CRD"}
    assert TABLE.keys() == rows
    assert all(list(cells) == list(MODULES) for cells in TABLE.values())
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["kubeVersion"] == f">={next(iter(MODULES))}.0-0"


@pytest.mark.parametrize("name", FIELDS)
def test_api_server_treats_the_field_as_the_page_says(name: str, own: KubeCluster) -> None:
    status, created, _ = own.create_pod(with_field(name))
    field, value = FIELDS[name]
    seen = "refused" if status == 422 else "kept" if field(created) == value else "dropped"
    if seen != "refused":
        assert status == 201, created
    assert seen == TABLE[name][chosen()]
    if field is in_volume:
        mounts = created["spec"]["initContainers"][0]["volumeMounts"]
        assert (VOLUME in {mount["name"] for mount in mounts}) is (seen == "kept")


@pytest.mark.parametrize("name", REMEDIES)
def test_podsettle_uses_the_field_only_where_the_api_server_keeps_it(
    name: str, settling: KubeCluster
) -> None:
    pod = fresh(simple_pod("a"))
    pod["metadata"]["labels"] = {"row": str(list(REMEDIES).index(name))}
    status, created, warnings = settling.create_pod(pod)
    assert status == 201, created
    reasons = set(re.findall(r"ServerTooOld", " ".join(warnings))) or {"Applied"}
    assert reasons == {TABLE[name][chosen()]}
    applied = created["metadata"]["annotations"].get("podsettle.dev/applied", "")
    assert bool(applied) is (reasons == {"Applied"})
    (remedy,) = REMEDIES[name]
    kept: dict[str, Callable[[], bool]] = {
        "seLinuxChangePolicy": lambda: in_pod(created) == "Recursive",
        "postInitSleep": lambda: any("image" in each for each in created["spec"]["volumes"]),
        "retryInitExit255": lambda: in_init_container(created) == NEVER,
    }
    assert kept[remedy]() is (reasons == {"Applied"})


def test_api_server_evaluates_match_conditions(own: KubeCluster) -> None:
    """The webhook refuses by being unreachable. Its condition exempts one of two pods."""
    ca = trustme.CA().cert_pem.bytes()
    hook = registered(own, "conditional", "https://127.0.0.1:1/mutate", ca)
    (webhook,) = hook.body["webhooks"]
    webhook["objectSelector"] = {"matchExpressions": [{"key": "condition", "operator": "Exists"}]}
    webhook["matchConditions"] = [
        {"name": "called", "expression": "object.metadata.labels['condition'] == 'called'"}
    ]

    def status(label: str) -> int:
        pod = simple_pod("a")
        pod["metadata"]["labels"] = {"condition": label}
        return own.create_pod(pod, dry_run=True).status

    with hook:
        await_that(lambda: status("called") == 500, "the webhook is called")
        assert status("exempt") == 201
    assert TABLE["match conditions of a webhook"][chosen()] == "evaluated"


def test_api_server_enforces_the_validation_rules_of_the_crd(own: KubeCluster) -> None:
    answer = own.request("POST", f"{POLICIES}?dryRun=All", WRONG["two classes"].document)
    assert answer.status == 422
    assert "this is b, but runtimeClass.name is a" in answer.body["message"]
    assert TABLE["validation rules of the CRD"][chosen()] == "enforced"
