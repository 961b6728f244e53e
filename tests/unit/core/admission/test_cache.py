"""Tests of the decision cache: cached decisions equal new ones, and the cache is bounded."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.both_ways import admit_both_ways
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
from tests.support.patches import NOTES
from tests.support.strategies import NAMESPACES, PODS, VARIED_FIELDS, VIEWS, with_fields
from tests.support.strategies import SETTINGS as SOME_SETTINGS
from webhook.core.admission.cache import DecisionCache
from webhook.core.admission.decider import Decider, OperatorSettings
from webhook.core.admission.decision import Decision
from webhook.core.admission.handler import admit
from webhook.core.admission.review import Request, decode_review
from webhook.core.cluster.nodes import Node, Nodes
from webhook.core.cluster.view import ClusterFacts
from webhook.core.decision_input import ContainerFacts, DecisionInput, NamespaceFacts, PodFacts
from webhook.core.defects.versions import Version
from webhook.core.images import Images
from webhook.core.policy.plan import Plan
from webhook.core.policy.snapshot import Snapshot
from webhook.core.reasons import Reason

SEEN = view(policy(), nodes=[node()])


def request(document: Any, **further: Any) -> Request[Any]:
    return decode_review(json.dumps(review(document, **further)).encode()).request


def decide(
    cache: DecisionCache | None,
    document: Any,
    seen: Snapshot = SEEN,
    settings: OperatorSettings = SETTINGS,
) -> Decision:
    return Decider(settings, cache).decide(request(document), seen)


def stored(cache: DecisionCache, document: Any, seen: Snapshot = SEEN) -> Decision:
    """Return the decision that the cache stores, which it does the second time."""
    decide(cache, document, seen)
    return decide(cache, document, seen)


@given(
    document=PODS,
    varied=st.lists(VARIED_FIELDS, min_size=1, max_size=3),
    views=st.lists(VIEWS, min_size=1, max_size=2),
    names=st.lists(st.sampled_from(NAMESPACES), min_size=2, max_size=2, unique=True),
    settings=SOME_SETTINGS,
)
def test_pods_of_one_template_get_equal_answers_with_and_without_the_cache(
    document: Json,
    varied: list[Json],
    views: list[Snapshot],
    names: list[str],
    settings: OperatorSettings,
) -> None:
    """The pods come in turn from two namespaces, and the view of the cluster changes."""
    pods = [document, *(with_fields(document, fields) for fields in varied)]
    for seen in (*views, views[0]):
        for each in pods:
            for name in names:
                body = json.dumps(review(each, namespace=name)).encode()
                admit_both_ways(body, seen, settings)


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
    """Return a copy with one value changed, at a path with dots."""
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
        ("metadata.labels", {"tekton.dev/taskRun": "build-2"}),
        ("metadata.annotations", {"tekton.dev/ready": "2"}),
        ("metadata.annotations", {"tekton.dev/ready": "1", "of": "others"}),
        ("spec.volumes.0.name", "kube-api-access-q4zzt"),
        ("spec.initContainers.0.volumeMounts.0.name", "t-2"),
        ("spec.initContainers.1.args", ["-c", "echo 2"]),
        ("spec.initContainers.1.env", [{"name": "RUN", "value": "2"}]),
        ("spec.containers.0.args", ["-run", "2"]),
        ("spec.containers.1.command", ["/tekton/scripts/sidecar-script-0-8k2mz"]),
        ("spec.containers.1.volumeMounts", [{"name": "t-1", "mountPath": "/t"}]),
        ("spec.schedulerName", "another"),
    ],
)
def test_pods_of_one_template_share_a_cached_decision(path: str, value: Any) -> None:
    cache = DecisionCache()
    first = stored(cache, TASK)
    assert first.patch
    assert decide(cache, changed(TASK, path, value)) is first


def inputs_with_one_fact() -> Iterator[DecisionInput]:
    """Yield an input without facts, and one for each fact of a pod, a namespace and a container."""
    decode = msgspec.json.Decoder(DecisionInput).decode
    values: tuple[Any, ...] = (True, 1, "x", ["x"], [{}], {"k": "v"})
    yield decode(encode({"pod": {}, "namespace": {}}))
    for struct, place in ((PodFacts, "pod"), (NamespaceFacts, "namespace"), (ContainerFacts, "")):
        for field in msgspec.structs.fields(struct):
            for value in values:
                found = {field.encode_name: value}
                whole = {place: found} if place else {"pod": {"containers": [found]}}
                with suppress(msgspec.ValidationError):
                    yield decode(encode({"pod": {}, "namespace": {}} | whole))
                    break


def test_every_fact_is_a_part_of_the_cache_key() -> None:
    cache, plan = DecisionCache(), Plan((), (), (), frozenset())
    cluster = ClusterFacts(SEEN.nodes, {}, None, IMAGE, None, None)
    inputs = list(inputs_with_one_fact())
    structs = (PodFacts, NamespaceFacts, ContainerFacts)
    assert len(inputs) == 1 + sum(len(each.__struct_fields__) for each in structs)
    for each in (*inputs, *inputs):
        cache.get_or_decide(request(TASK).pod, each, plan, cluster, Images())
    assert len(cache) == len(inputs)


def policies(**remedies: Any) -> Snapshot:
    return view(policy(remedies=remedies))


@pytest.mark.parametrize(
    ("before", "change"),
    [
        (SEEN, view(nodes=[node(runtime="containerd://2.1.5")])),
        (policies(runtimeClass={"name": "fast"}), view(classes=[runtime_class("fast")])),
        (policies(seLinuxChangePolicy="Recursive"), view(server=Version(1, 36))),
        (SEEN, replace(SEEN, policies=policies(kubeletGate={}).policies)),
        (
            policies(skipSELinuxRelabel={"pods": "All"}),
            view(namespaces=[namespace("ci", annotations={"openshift.io/sa.scc.mcs": "s0:c1,c2"})]),
        ),
    ],
    ids=["nodes", "classes", "release", "policies", "namespace"],
)
def test_a_change_of_the_cluster_invalidates_the_cache(before: Snapshot, change: Snapshot) -> None:
    cache = DecisionCache()
    after = change if len(change.policies) else replace(change, policies=before.policies)
    for seen in (before, before, after, after, before):
        wanted = decide(None, TASK, seen)
        assert decide(cache, TASK, seen) == wanted
    assert decide(None, TASK, before) != decide(None, TASK, after)


class CountedNodes(Nodes):
    """Nodes that count how often they are compared with others."""

    comparisons: int

    def __init__(self, found: Iterable[Node]) -> None:
        super().__init__(found)
        object.__setattr__(self, "comparisons", 0)

    def __eq__(self, other: object) -> bool:
        object.__setattr__(self, "comparisons", self.comparisons + 1)
        return isinstance(other, Nodes) and self.all == other.all

    __hash__ = None


def test_equal_nodes_of_a_new_listing_keep_the_cache() -> None:
    cache = DecisionCache()
    again = view(policy(), nodes=[node()])
    nodes = CountedNodes(again.nodes.all)
    again = replace(again, policies=SEEN.policies, nodes=nodes)
    first = stored(cache, TASK)
    for _ in range(2):
        assert decide(cache, TASK, again) is first
    # Thousands of nodes must be compared once, not for each review.
    assert nodes.comparisons == 1


def test_a_new_setting_of_the_operator_invalidates_the_cache() -> None:
    cache = DecisionCache()
    other = "registry.example/another:1"
    for settings in (
        *(OperatorSettings(linger_image=image) for image in (IMAGE, IMAGE, None, other)),
        *(OperatorSettings(docs_url=url) for url in (None, None, "https://docs.example/why")),
    ):
        wanted = decide(None, TASK, SEEN, settings)
        assert decide(cache, TASK, SEEN, settings) == wanted


def test_a_decision_with_missing_images_is_not_cached() -> None:
    rules = {"lookup": "Registry", "registries": ["registry.example"]}
    seen = view(policy(imageConfig=rules), nodes=[node()])
    cache = DecisionCache()
    document = pod(container("a"))
    first = stored(cache, document, seen)
    assert first.missing_images
    assert len(cache) == 0
    assert decide(cache, document, seen) == first


def test_the_annotation_limit_counts_the_annotations_that_a_cached_decision_sets() -> None:
    cache = DecisionCache()

    def reasons(length: int) -> list[str]:
        body = json.dumps(review(pod(container("a", "sh"), annotations={"of": "x" * length})))
        decided = admit(body.encode(), Decider(SETTINGS, cache), SEEN).decision
        return [outcome.reason for outcome in decided.outcomes]

    cached = stored(cache, pod(container("a", "sh"), annotations={"of": ""}))
    needed = {k: v for k, v in cached.annotations.items() if k not in NOTES}
    added = sum(len(key) + len(value) for key, value in needed.items())
    longest = 2**18 - len("of") - added
    assert reasons(longest) == ["Applied"]
    assert reasons(longest + 1) == ["AnnotationsFull"]
    assert len(cache) == 1


def test_a_long_review_uses_the_cache() -> None:
    cache = DecisionCache()
    body = json.dumps(review(pod(container("a", "sh", args=["x" * 300_000])))).encode()
    _, stored, again = (admit(body, Decider(SETTINGS, cache), SEEN).decision for _ in range(3))
    assert stored is again


@pytest.mark.parametrize(
    "document",
    [
        pod(container("a", "x" * 80_000)),
        pod(*[container(f"c{n}", "sh") for n in range(200)]),
    ],
    ids=["long command", "many containers"],
)
def test_a_large_cache_entry_is_not_stored(document: Json) -> None:
    cache = DecisionCache()
    assert stored(cache, document).patch
    assert len(cache) == 0


def test_a_missing_policy_is_reported_with_the_namespace_of_the_request() -> None:
    cache = DecisionCache()
    labels = {"podsettle.dev/policy": "gone"}
    seen = view(policy(), namespaces=[namespace(name, labels) for name in ("ci", "qa")])
    for name in ("ci", "qa"):
        asked = request(TASK, namespace=name)
        decision = Decider(SETTINGS, cache).decide(asked, seen)
        assert f"namespace '{name}' asks for" in decision.outcomes[0].message
        assert f"namespace '{name}' asks for" in decision.texts.texts_json.decode()
        assert "PolicyNotFound" in decision.texts.log_summary
        assert (("", Reason.POLICY_NOT_FOUND), 1) in decision.texts.reason_counts


def test_thousands_of_small_decisions_take_no_more_memory_than_twice_the_limit() -> None:
    names = [f"ci-{number}" for number in range(2_000)]
    seen = view(policy(), nodes=[node()], namespaces=[namespace(name) for name in names])
    requests = [request(pod(containers=[container(name, "/x")]), namespace=name) for name in names]
    for each in requests:  # Fills the caches of the view's policies.
        Decider(SETTINGS).decide(each, seen)
    cache = DecisionCache(max_bytes=500_000)
    tracemalloc.start()
    try:
        for each in (each for each in requests for _ in range(2)):
            Decider(SETTINGS, cache).decide(each, seen)
        used_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 150 < len(cache) < len(names)
    assert used_bytes < 2 * 500_000


def task(number: int) -> Json:
    """Return a pod whose decision differs from that of every other number."""
    return changed(TASK, "spec.initContainers.0.name", f"a-{number:04}")


def test_pods_that_differ_in_commands_share_an_entry_and_get_their_own_patches() -> None:
    cache = DecisionCache()
    first = stored(cache, TASK)
    for command in (["/ko-app/entrypoint", "other"], ["/ko-app/entrypoint"]):
        document = changed(TASK, "spec.initContainers.0.command", command)
        found = decide(cache, document)
        assert found == decide(None, document) != first
        assert decide(cache, document) is found
        assert (len(cache), found.outcomes) == (1, first.outcomes)
    assert decide(cache, TASK) == first
    whole = changed(TASK, "spec.initContainers.0.command", ["/ko-app/entrypoint", "x" * 200_000])
    assert decide(cache, whole) == decide(None, whole)
    assert cache.size_bytes < 20_000  # The answer to that pod is not kept.


def test_pods_of_which_no_two_are_alike_are_not_stored() -> None:
    cache = DecisionCache()
    first = stored(cache, TASK)
    for number in range(6_000):  # More than the cache remembers as seen once.
        decide(cache, task(number))
    assert len(cache) == 1
    assert decide(cache, TASK) is first


def test_a_full_cache_evicts_the_decision_that_was_used_least_recently() -> None:
    cache = DecisionCache(max_bytes=256 * 1024)
    used, unused = stored(cache, task(0)), stored(cache, task(1))
    size = cache.size_bytes / 2
    for number in range(2, 100):
        stored(cache, task(number))
        assert decide(cache, task(0)) is used
        assert cache.size_bytes == len(cache) * size <= 256 * 1024
    assert len(cache) > 256 * 1024 / size - 1
    last = decide(cache, task(99))
    assert decide(cache, task(1)) is not unused
    assert decide(cache, task(99)) is last


def test_a_namespace_uses_the_decisions_that_another_namespace_has_caused() -> None:
    cache = DecisionCache()
    first, second, third = (
        Decider(SETTINGS, cache).decide(request(TASK, namespace=name), SEEN)
        for name in ("ci", "qa", "ci")
    )
    assert first is not second
    assert second is third


BROKEN = [b"\xff", b"\\ud800", b"\\x", b"\x01", b"\xc3", b"\xed\xa0\x80"]
"""Texts that are invalid UTF-8 or invalid JSON. msgspec does not check the texts that it skips."""


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
def test_invalid_utf_8_gives_equal_decisions_with_and_without_the_cache(
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
    wanted = [admit(body, Decider(SETTINGS), seen).decision for body in bodies]
    assert wanted[0].patch
    for order in (bodies, bodies[1:]):
        decider = Decider(SETTINGS, DecisionCache())
        for _ in range(3):
            found = [admit(body, decider, seen).decision for body in order]
            assert found == wanted[-len(order) :]
    assert not any(o.reason == "InternalError" for each in wanted for o in each.outcomes)


encode = msgspec.json.encode


def text_of(seen: Snapshot) -> str:
    """Return everything that a decision can reach in a view."""
    documents = [each.model_dump_json() for each in seen.policies.documents]
    return repr((seen.nodes, seen.runtime_classes, seen.namespaces, documents))


@given(PODS, VIEWS, SOME_SETTINGS)
def test_decide_changes_none_of_its_arguments(
    document: Json, seen: Snapshot, settings: OperatorSettings
) -> None:
    received, cache = request(document), DecisionCache()
    before = encode(received), text_of(seen), repr(settings)
    for used in (None, cache, cache):
        decision = Decider(settings, used).decide(received, seen)
        operations = encode(decision.operations)
        assert (encode(received), text_of(seen), repr(settings)) == before
        assert encode(decision.operations) == operations
