"""Decisions that are remembered: the same as those that are made anew, and not for too long."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from tests.support.factories import (
    IMAGE,
    SETTINGS,
    Json,
    container,
    namespace,
    node,
    pod,
    policy,
    review,
    runtime_class,
    view,
)
from tests.support.strategies import PODS, VIEWS
from tests.support.strategies import SETTINGS as SOME_SETTINGS
from webhook.cluster.snapshot import Snapshot
from webhook.core.admission.cache import DecisionCache
from webhook.core.admission.decide import OperatorSettings, decide
from webhook.core.admission.decision import Decision
from webhook.core.admission.handler import admit, decide_safely
from webhook.core.admission.review import Request, decode_review
from webhook.core.defects.versions import Version

SEEN = view(policy(), nodes=[node()])


def request(document: Any, **further: Any) -> Request[Any]:
    return decode_review(json.dumps(review(document, **further)).encode()).request


def recalled(
    cache: DecisionCache,
    document: Any,
    seen: Snapshot = SEEN,
    settings: OperatorSettings = SETTINGS,
) -> Decision:
    return decide(request(document), seen.policies, seen, settings, cache=cache)


ONE_FOR_ALL = DecisionCache()


@given(PODS, VIEWS, SOME_SETTINGS)
def test_it_decides_as_if_it_remembered_nothing(
    document: Any, seen: Snapshot, settings: OperatorSettings
) -> None:
    wanted = decide_safely(request(document), seen.policies, seen, settings)
    for _ in range(2):
        assert (
            decide_safely(request(document), seen.policies, seen, settings, cache=ONE_FOR_ALL)
            == wanted
        )


TASK = pod(
    container("prepare", "/ko-app/entrypoint", "init", volumeMounts=[{"name": "t-1"}]),
    container("place-scripts", "sh", args=["-c", "echo 1"]),
    containers=[
        container("step-build", "/tekton/bin/entrypoint", args=["-run", "1"]),
        container("sidecar-db", "/tekton/scripts/sidecar-script-0-pv79q"),
    ],
    labels={"tekton.dev/taskRun": "build-1"},
    annotations={"tekton.dev/ready": "1"},
    volumes=[{"name": "kube-api-access-7x2lp", "projected": {}}, {"name": "t-1"}],
    restartPolicy="Never",
)


def changed(document: Json, path: str, value: Any) -> Json:
    """A copy with one value changed, at a path with dots."""
    made: Json = json.loads(json.dumps(document))
    *steps, last = path.split(".")
    here: Any = made
    for step in steps:
        here = here[int(step)] if step.isdigit() else here.setdefault(step, {})
    here[int(last) if last.isdigit() else last] = value
    return made


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "another"),
        ("metadata.generateName", "another-"),
        ("metadata.labels", {"tekton.dev/taskRun": "build-2"}),
        ("metadata.annotations", {"tekton.dev/ready": "2"}),
        ("metadata.annotations", {"tekton.dev/ready": "1", "of": "others"}),
        ("spec.volumes.0.name", "kube-api-access-q4zzt"),
        ("spec.volumes.1.name", "t-2"),
        ("spec.initContainers.0.volumeMounts.0.name", "t-2"),
        ("spec.initContainers.1.args", ["-c", "echo 2"]),
        ("spec.initContainers.1.env", [{"name": "RUN", "value": "2"}]),
        ("spec.containers.0.args", ["-run", "2"]),
        ("spec.containers.1.command", ["/tekton/scripts/sidecar-script-0-8k2mz"]),
        ("spec.containers.1.volumeMounts", [{"name": "t-1", "mountPath": "/t"}]),
        ("spec.schedulerName", "another"),
    ],
)
def test_pods_of_one_template_are_decided_on_once(path: str, value: Any) -> None:
    cache = DecisionCache()
    first = recalled(cache, TASK)
    assert first.operations
    assert recalled(cache, changed(TASK, path, value)) is first


INSTALLED = {"name": "podsettle-linger", "command": ["/linger"], "restartPolicy": "Always"}
MOUNT = {"name": "t", "mountPath": "/podsettle/"}
WRAPPED_SIDECAR = {"name": "s", "command": ["/podsettle/linger", "x"], "restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.annotations", {"podsettle.dev/skip": "true"}),
        ("metadata.annotations", {"podsettle.dev/applied": "other/runtimeClass"}),
        ("metadata.annotations", None),
        ("metadata.labels", {"a": "b", "c": "d"}),
        ("spec.volumes.0", {"name": "podsettle-linger", "configMap": {}}),
        ("spec.volumes.0", {"name": "podsettle-linger", "emptyDir": {}}),
        ("spec.volumes", None),
        ("spec.initContainers.0.command", ["/another"]),
        ("spec.initContainers.0.resources", {"limits": {"cpu": "1"}}),
        ("spec.initContainers.0.volumeMounts", [MOUNT]),
        ("spec.initContainers.0.volumeMounts", [{**MOUNT, "mountPath": "/podsettl\u00e9"}]),
        ("spec.initContainers.0.volumeMounts", None),
        ("spec.initContainers.0.volumeMounts", {"no": "list"}),
        ("spec.initContainers.0.volumeDevices", [{"name": "d", "devicePath": "/podsettle"}]),
        ("spec.initContainers.0.restartPolicy", "Always"),
        ("spec.initContainers.1", INSTALLED),
        ("spec.initContainers", [WRAPPED_SIDECAR, {**INSTALLED, "restartPolicy": None}]),
        ("spec.containers.0.name", "podsettle-linger"),
        ("spec.securityContext", {"runAsUser": 0}),
        ("spec.nodeName", "elsewhere"),
    ],
)
def test_what_matters_is_seen(path: str, value: Any) -> None:
    cache = DecisionCache()
    # An é stands for an e that the body writes as an escape.
    documents = TASK, changed(TASK, path, value)
    bodies = [json.dumps(review(d)).replace("\\u00e9", "\\u0065").encode() for d in documents]
    for body in (*bodies, *bodies):
        asked, again = (decode_review(body).request for _ in range(2))
        wanted = decide_safely(asked, SEEN.policies, SEEN, SETTINGS)
        assert decide_safely(again, SEEN.policies, SEEN, SETTINGS, cache=cache) == wanted
    one, other = (
        decide_safely(decode_review(b).request, SEEN.policies, SEEN, SETTINGS)[0] for b in bodies
    )
    assert (one == other) is (path == "spec.nodeName")


def policies(**remedies: Any) -> Snapshot:
    return view(policy(remedies=remedies))


@pytest.mark.parametrize(
    ("before", "change"),
    [
        (SEEN, view(nodes=[node(runtime="containerd://2.1.5")])),
        (policies(runtimeClass={"name": "fast"}), view(classes=[runtime_class("fast")])),
        (policies(seLinuxChangePolicy="Recursive"), view(server=Version(1, 36))),
        (SEEN, policies(kubeletGate={})),
        (
            policies(skipSELinuxRelabel={"pods": "All"}),
            view(namespaces=[namespace("ci", annotations={"openshift.io/sa.scc.mcs": "s0:c1,c2"})]),
        ),
    ],
    ids=["nodes", "classes", "release", "policies", "namespace"],
)
def test_a_cluster_that_changed_is_looked_at_again(before: Snapshot, change: Snapshot) -> None:
    cache = DecisionCache()
    after = change if len(change.policies) else replace(change, policies=before.policies)
    for seen in (before, after, before):
        wanted = decide(request(TASK), seen.policies, seen, SETTINGS)
        assert recalled(cache, TASK, seen) == wanted
    assert decide(request(TASK), before.policies, before, SETTINGS) != decide(
        request(TASK), after.policies, after, SETTINGS
    )


def test_the_same_pod_in_a_namespace_of_the_cluster_itself_is_another_case() -> None:
    cache = DecisionCache()
    named = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["ci", "kube-ci"]}
    gate = policy(remedies={"kubeletGate": {}}, namespaceSelector={"matchExpressions": [named]})
    seen = view(gate)
    for name, reason in (("ci", "Applied"), ("kube-ci", "SystemPod"), ("ci", "Applied")):
        asked = request(pod(hostNetwork=True), namespace=name)
        decision = decide(asked, seen.policies, seen, SETTINGS, cache=cache)
        assert [outcome.reason for outcome in decision.outcomes] == [reason]


def test_nodes_that_were_listed_again_are_the_same() -> None:
    cache = DecisionCache()
    again = view(policy(), nodes=[node()])
    again = replace(again, policies=SEEN.policies)
    first = recalled(cache, TASK)
    for _ in range(2):
        assert recalled(cache, TASK, again) is first
    # Compared once, not for each review: there may be thousands.
    assert cache._generation[0] is again.nodes


def test_another_image_of_the_helper_is_looked_at_again() -> None:
    cache = DecisionCache()
    for image in (IMAGE, None, "registry.example/another:1"):
        settings = OperatorSettings(linger_image=image)
        wanted = decide(request(TASK), SEEN.policies, SEEN, settings)
        assert recalled(cache, TASK, SEEN, settings) == wanted


def test_what_lacks_an_image_is_decided_on_again() -> None:
    rules = {"lookup": "Registry", "registries": ["registry.example"]}
    seen = view(policy(imageConfig=rules), nodes=[node()])
    cache = DecisionCache()
    document = pod(container("a"))
    first = recalled(cache, document, seen)
    assert first.missing_images
    assert recalled(cache, document, seen) is not first


def test_a_pod_whose_annotations_leave_no_room_is_not_taken_for_one_of_its_make() -> None:
    cache = DecisionCache()
    slim, full = (
        json.dumps(review(pod(container("a", "sh"), annotations={"of": text}))).encode()
        for text in ("x", "x" * (2**18 - 4))
    )
    assert admit(slim, SEEN.policies, SEEN, SETTINGS, cache=cache).decision.operations
    (outcome,) = admit(full, SEEN.policies, SEEN, SETTINGS, cache=cache).decision.outcomes
    assert outcome.reason == "AnnotationsFull"


@pytest.mark.parametrize(("length", "remembered"), [(10_000, True), (70_000, False)])
def test_reviews_of_a_usual_size_are_remembered(length: int, remembered: bool) -> None:
    cache = DecisionCache()
    body = json.dumps(review(pod(container("a", "sh", args=["x" * length])))).encode()
    first, again = (
        admit(body, SEEN.policies, SEEN, SETTINGS, cache=cache).decision for _ in range(2)
    )
    assert first == again
    assert (first is again, bool(len(cache))) == (remembered, remembered)


@pytest.mark.parametrize(
    "document",
    [
        pod(container("a", "x" * 40_000)),
        pod(*[container(f"c{n}", "sh") for n in range(60)]),
    ],
    ids=["long", "answered at length"],
)
def test_what_takes_much_memory_is_not_remembered(document: Json) -> None:
    cache = DecisionCache()
    assert recalled(cache, document).operations
    assert len(cache) == 0


def test_a_namespace_that_asks_for_a_missing_policy_is_told_so_by_its_name() -> None:
    cache = DecisionCache()
    labels = {"podsettle.dev/policy": "gone"}
    seen = view(policy(), namespaces=[namespace(name, labels) for name in ("ci", "qa")])
    for name in ("ci", "qa"):
        decision = decide(request(TASK, namespace=name), seen.policies, seen, SETTINGS, cache=cache)
        assert f"namespace '{name}' asks for" in decision.outcomes[0].message


def test_distinct_pods_do_not_grow_the_cache_beyond_its_limit() -> None:
    sample = DecisionCache()
    recalled(sample, TASK)
    size = sample.size_bytes
    cache = DecisionCache(max_bytes=3 * size + 100)
    recalled(cache, TASK)
    for number in range(20):
        recalled(cache, changed(TASK, "spec.initContainers.0.command", ["a", str(number)]))
        assert 0 < cache.size_bytes <= 3 * size + 100
        assert len(cache) <= 3


BROKEN = [b"\xff", b"\\ud800", b"\\x", b"\x01", b"\xc3", b"\xed\xa0\x80"]
"""Texts that are no UTF-8 or no JSON; what msgspec passes over it does not look at."""


@pytest.mark.parametrize("broken", BROKEN, ids=repr)
@pytest.mark.parametrize(
    "path",
    [
        "spec.initContainers.0.args",
        "spec.initContainers.1.args",
        "spec.containers.0.args",
        "spec.initContainers.0.volumeMounts",
        "spec.containers.1.volumeMounts",
        "spec.initContainers.0.volumeDevices",
        "spec.initContainers.0.resources",
        "spec.initContainers.0.env",
        "spec.containers.0.resources",
        "spec.tolerations",
        "spec.volumes.0.projected",
        "metadata.labels",
        "metadata.managedFields",
    ],
)
def test_a_text_that_is_not_utf_8_is_decided_on_alike_with_and_without_the_cache(
    path: str, broken: bytes
) -> None:
    value = {
        "args": ["-c", "MARK"],
        "volumeMounts": [{"name": "MARK", "mountPath": "/MARK"}],
        "volumeDevices": [{"name": "MARK", "devicePath": "/MARK"}],
        "resources": {"limits": {"cpu": "MARK"}},
        "tolerations": [{"key": "MARK"}],
    }.get(path.rpartition(".")[2], {"k": "MARK"})
    seen = view(
        policy(remedies={"postInitSleep": {"containers": ["*"]}, "kubeletGate": {}}), nodes=[node()]
    )
    whole = json.dumps(review(changed(TASK, path, value))).encode()
    bodies = [whole, whole.replace(b"MARK", broken), whole]
    wanted = [admit(body, seen.policies, seen, SETTINGS).decision for body in bodies]
    assert wanted[0].operations
    for order in (bodies, bodies[1:]):
        cache = DecisionCache()
        found = [admit(body, seen.policies, seen, SETTINGS, cache=cache).decision for body in order]
        assert found == wanted[-len(order) :]
    assert not any(o.reason == "InternalError" for decision in wanted for o in decision.outcomes)
