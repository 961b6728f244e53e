"""Tests of admission: a real API server calls podsettle for every fixture pod."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.support.e2e_pods import (
    HEAVY,
    RESTRICTED,
    UNTOUCHED,
    create,
    fresh,
    init_names,
    normal,
    simple_pod,
    wrappers,
)
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.other_webhook import start_other_webhook
from tests.support.registered_webhook import registered
from tests.support.reviews import PODS, load_pod
from tests.support.waiting import await_that
from tools.kube_versions import server_minor
from webhook.core.preview.controller_fields import fill_in_nulls

SETTLED = [path for path in PODS if path.stem not in UNTOUCHED]


def is_wrappable(container: Json) -> bool:
    is_sidecar = container.get("restartPolicy") == "Always"
    is_sidecar |= container["name"].startswith("sidecar-")
    return bool(container.get("command")) and not is_sidecar


@pytest.mark.parametrize("path", SETTLED, ids=lambda path: path.stem)
def test_api_server_adds_overhead_and_scheduling_of_the_runtime_class(
    path: Path, settling: KubeCluster, baselines: dict[str, Json]
) -> None:
    baseline = baselines[path.stem]
    spec = create(settling, load_pod(path), dry_run=True)["spec"]
    if "runtimeClassName" in baseline["spec"]:
        for key in ("runtimeClassName", "overhead", "nodeSelector", "tolerations"):
            assert spec.get(key) == baseline["spec"].get(key)
        return
    assert spec["runtimeClassName"] == "heavy"
    assert spec["overhead"] == HEAVY["overhead"]["podFixed"]
    assert spec["nodeSelector"] == {**baseline["spec"].get("nodeSelector", {}), "heavy": "true"}
    assert HEAVY["scheduling"]["tolerations"][0] in spec["tolerations"]


@pytest.mark.parametrize(
    ("path", "position"),
    [
        pytest.param(path, position, id=f"{path.stem}-{name}")
        for path in SETTLED
        for position, name in ((None, "last"), (0, "first"), (1, "second"))
        if position != 1 or load_pod(path)["spec"].get("initContainers")
    ],
)
def test_an_init_container_that_another_webhook_adds_is_wrapped_too(
    path: Path, position: int | None, settling: KubeCluster, other_webhooks: dict[int | None, str]
) -> None:
    pod = load_pod(path)
    pod["metadata"].setdefault("labels", {})["other-webhook"] = other_webhooks[position]
    created = create(settling, pod, dry_run=True)
    names = init_names(created)
    assert names.count("late") == 1
    assert names[0] == "podsettle-linger"
    assert names.count("podsettle-linger") == 1
    for container in created["spec"]["initContainers"]:
        if container["name"] != "podsettle-linger":
            assert wrappers(container) == int(is_wrappable(container))
    mounts = created["spec"]["initContainers"][names.index("late")]["volumeMounts"]
    assert [m["mountPath"] for m in mounts].count("/podsettle") == 1
    assert [v["name"] for v in created["spec"]["volumes"]].count("podsettle-linger") == 1


def test_dry_run_returns_the_same_pod_and_stores_nothing(settling: KubeCluster) -> None:
    pod = fresh(load_pod(SETTLED[0]))
    namespace = pod["metadata"]["namespace"]
    listing = f"/api/v1/namespaces/{namespace}/pods"
    before = len(settling.request("GET", listing).body["items"])
    shown = settling.kubectl(
        "create", "--dry-run=server", "-o", "yaml", "-f", "-", input=yaml.safe_dump(pod)
    )
    assert shown.returncode == 0, shown.stderr
    assert len(settling.request("GET", listing).body["items"]) == before
    assert normal(yaml.safe_load(shown.stdout)) == normal(create(settling, pod))


def test_pod_says_what_was_done_and_left_out_and_says_it_once(settling: KubeCluster) -> None:
    pod = simple_pod("notes", command=None)
    created = create(settling, fresh(pod))
    annotations = created["metadata"]["annotations"]
    assert annotations["podsettle.dev/summary"] == (
        "The pod is put under RuntimeClass heavy, by policy settle;\n"
        "prepare and main were left as they are: NoCommand."
    )
    skipped = "prepare/postInitSleep=NoCommand,main/postInitSleep=NoCommand"
    assert annotations["podsettle.dev/skipped"] == skipped
    copied = {**created, "metadata": {**pod["metadata"], "annotations": annotations}}
    assert normal(create(settling, copied, dry_run=True)) == normal(created)


LEFT_ALONE: dict[str, Json] = {
    "opted out": {"metadata": {"annotations": {"podsettle.dev/skip": "true"}}},
    "mirror": {
        "metadata": {"annotations": {"kubernetes.io/config.mirror": "0123456789abcdef"}},
        "spec": {"nodeName": "node-1"},
    },
    "windows": {"spec": {"os": {"name": "windows"}}},
    "windows by selector": {"spec": {"nodeSelector": {"kubernetes.io/os": "windows"}}},
}


@pytest.mark.parametrize("why", LEFT_ALONE)
def test_uncovered_pod_is_created_byte_for_byte_as_without_podsettle(
    why: str, settling: KubeCluster
) -> None:
    """The reference is the same pod, created in a namespace that disables podsettle."""

    def made(namespace: str) -> Json:
        pod = simple_pod("left-alone", namespace)
        for key, change in LEFT_ALONE[why].items():
            pod[key] |= change
        return create(settling, pod, dry_run=True)

    assert json.dumps(normal(made("default"))) == json.dumps(normal(made("off")))


def test_pod_is_admitted_with_a_warning_when_the_runtime_class_does_not_exist(
    settling: KubeCluster,
) -> None:
    pod = fresh(simple_pod("missing"))
    pod["metadata"]["labels"] = {"test-delivery": "missing-class"}
    done = settling.kubectl("create", "-f", "-", input=yaml.safe_dump(pod))
    assert done.returncode == 0, done.stderr
    assert done.stderr == (
        "Warning: podsettle: runtimeClass: RuntimeClassMissing: "
        "RuntimeClass 'none-such' does not exist\n"
    )


def test_restricted_namespace_admits_a_pod_with_an_image_volume(settling: KubeCluster) -> None:
    namespace = settling.namespace(
        "restricted-", labels={"pod-security.kubernetes.io/enforce": "restricted"}
    )
    pod = simple_pod("a", namespace, securityContext=RESTRICTED)
    pod["metadata"]["labels"] = {"test-delivery": "image-volume"}
    created = create(settling, pod)
    assert init_names(created) == ["prepare"]
    # An API server before 1.35 drops image volumes, so the pod is left as it is.
    is_wrapped = server_minor() >= 35
    assert wrappers(created["spec"]["initContainers"][-1]) == int(is_wrapped)
    skipped = created["metadata"]["annotations"].get("podsettle.dev/skipped", "")
    assert ("prepare/postInitSleep=ServerTooOld" in skipped) is not is_wrapped


def test_audit_annotations_hold_applied_remedies_and_reasons(settling: KubeCluster) -> None:
    identifier = str(uuid.uuid4())
    answer = settling.create_pod(fresh(simple_pod("a")), headers={"Audit-ID": identifier})
    assert answer.status == 201
    annotations = settling.audit_event(identifier)["annotations"]
    assert annotations["pods.podsettle.dev/applied"] == (
        "settle/runtimeClass=Applied settle/postInitSleep[prepare]=Applied"
    )
    assert annotations["pods.podsettle.dev/skipped"] == (
        "settle/skipSELinuxRelabel=NoPersistentVolume settle/postInitSleep[main]=NoCommand"
    )


def test_updates_and_subresources_are_not_changed(settling: KubeCluster) -> None:
    pod = create(settling, fresh(simple_pod("a")))
    path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
    patched = settling.request("PATCH", path, {"metadata": {"labels": {"a": "b"}}})
    assert patched.status == 200
    assert patched.body["spec"] == pod["spec"]


def test_preview_reads_nulls_as_the_api_server_does(settling: KubeCluster) -> None:
    """In YAML, a key without a value is null."""
    quantities = {"cpu": None, "memory": "1Mi"}
    pod = simple_pod(
        "nulls",
        command=["a", None],
        args=[None, "b"],
        resources={"limits": quantities, "requests": quantities},
        securityContext={"capabilities": {"add": [None], "drop": ["ALL", None]}},
    )
    pod["spec"]["nodeSelector"] = {"c": None}
    annotations = {"b": None, "podsettle.dev/skip": "true"}
    pod["metadata"] |= {"labels": {"a": None}, "annotations": annotations}
    created = create(settling, pod, dry_run=True)
    fill_in_nulls(pod)
    for key in ("labels", "annotations"):
        assert created["metadata"][key].items() >= pod["metadata"][key].items()
    assert created["spec"]["nodeSelector"] == pod["spec"]["nodeSelector"]
    for kind in ("containers", "initContainers"):
        (found,), (ours,) = created["spec"][kind], pod["spec"][kind]
        assert {key: found[key] for key in ours} == ours


@pytest.fixture(scope="module")
def other_webhooks(
    settling: KubeCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[int | None, str]]:
    """Three webhooks that run after podsettle, one per position. A label of the pod selects one."""
    labels: dict[int | None, str] = {None: "last", 0: "first", 1: "second"}
    with ExitStack() as stack:
        for position, label in labels.items():
            directory = tmp_path_factory.mktemp(f"other-webhook-{label}")
            url, ca = stack.enter_context(start_other_webhook(directory, position))
            webhook = registered(settling, f"zz-other-webhook-{label}", url, ca)
            hook = webhook.body["webhooks"][0]
            hook["objectSelector"] = {"matchLabels": {"other-webhook": label}}
            hook["reinvocationPolicy"] = "Never"
            stack.enter_context(webhook)
        for label in labels.values():
            probe = simple_pod("probe")
            probe["metadata"]["labels"] = {"other-webhook": label}

            def called(probe: Json = probe) -> bool:
                status, created, _ = settling.create_pod(probe, dry_run=True)
                return status == 201 and "late" in init_names(created)

            await_that(called, f"the webhook {label} is called")
        yield labels
