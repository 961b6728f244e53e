"""Tests of postInitSleep around what images start: the process stays the same, or is left alone.

Short names and placeholders do not say what a node runs.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.factories import (
    LINGER,
    MODERN,
    SETTINGS,
    Decided,
    Json,
    container,
    decide_pod,
    in_shell,
    node,
    pod,
    policy,
    reasons,
    runtime_class,
    view,
)
from tests.support.factories import patched as patched_pod
from tests.support.kubelet_expansion import kubelet_expands
from tests.support.patches import changes
from webhook.core.admission.decider import OperatorSettings
from webhook.core.images import ImageConfig, ImageQuery, LookupRules, Unavailable
from webhook.core.policy.snapshot import Snapshot
from webhook.core.reasons import Reason

RULES = {"lookup": "Registry", "registries": ["registry.example"]}
SEEN = view(policy(imageConfig=RULES), nodes=[])
IMAGE = "registry.example/app:1"


def started(
    init: Json, config: ImageConfig | Unavailable, seen: Snapshot = SEEN, **spec: Any
) -> tuple[Json, Decided]:
    """Return the pod's first own init container as wrapped, with its image known."""
    new = pod(init, **spec)
    lacking = decide_pod(new, seen).missing_images
    decision = decide_pod(new, seen, images=dict.fromkeys(lacking, config))
    assert decision.missing_images == ()
    inits = patched_pod(new, decision)["spec"]["initContainers"]
    return next(c for c in inits if c["name"] == init["name"]), decision


def test_unknown_image_is_reported_as_missing() -> None:
    spec: Json = {
        "imagePullSecrets": [{"name": "a"}, {"name": "b"}],
        "serviceAccountName": "builder",
    }
    new = pod(container("a"), container("b", "/b"), container("c"), **spec)
    decision = decide_pod(new, SEEN)
    rules = LookupRules(("registry.example",))
    assert decision.missing_images == (
        ImageQuery(IMAGE, rules, frozenset(), "ci", ("a", "b"), "builder"),
    )
    assert reasons(decision) == [
        "a: ImageConfigUnavailable", "b: Applied", "c: ImageConfigUnavailable"
    ]  # fmt: skip
    assert decision.outcomes[0].message == "the image was not looked up"
    assert decision.warnings[0].startswith("podsettle: postInitSleep: ImageConfigUnavailable: a, c")


@pytest.mark.parametrize(
    ("said", "config", "command", "args"),
    [
        ({}, (["/e"], ["c"]), ["/e"], ["c"]),
        ({}, (["/e", "x"], []), ["/e", "x"], None),
        ({"args": ["p"]}, (["/e"], ["c"]), ["/e"], ["p"]),
        ({"args": []}, (["/e"], ["c"]), ["/e"], ["c"]),
        ({"args": None}, (["/e"], ["c"]), ["/e"], ["c"]),
        ({"command": []}, (["/e"], ["c"]), ["/e"], ["c"]),
        ({"command": None}, (["/e"], ["c"]), ["/e"], ["c"]),
        ({}, ([], ["/c", "d"]), ["/c", "d"], None),
        ({"args": ["/p"]}, ([], ["/c"]), [], ["/p"]),
        ({}, (["$(HOME)/x", "$$"], ["$(A)"]), ["$$(HOME)/x", "$$$$"], ["$$(A)"]),
        ({"args": ["$(A)"]}, (["/e"], ["c"]), ["/e"], ["$(A)"]),
    ],
)
def test_wrapper_precedes_entrypoint_and_cmd_follows(
    said: Json, config: tuple[list[str], list[str]], command: list[str], args: list[str] | None
) -> None:
    found, decision = started(
        {**container("a"), **said},
        ImageConfig(*map(tuple, config)),
    )
    assert reasons(decision) == ["a: Applied"]
    assert decision.outcomes[0].message.endswith(f"around what its image {IMAGE} starts")
    assert found["command"] == [*LINGER, *command]
    assert found.get("args") == args


def test_shell_entrypoint_is_wrapped_without_the_helper() -> None:
    for config, args in (
        (ImageConfig(("/bin/sh", "-c"), ("a $(B)",)), ["a $$(B)"]),
        (ImageConfig((), ("sh", "-c", "a $(B)")), None),
    ):
        found, decision = started(container("a"), config)
        whole = [*config.entrypoint, *(config.cmd if args is None else ())]
        escaped = [text.replace("$", "$$") for text in whole]
        assert found["command"] == in_shell(escaped, sleep_ms=10, min_lifetime_ms=500)
        assert found.get("args") == args
        assert not any("volumes" in operation["path"] for operation in decision.operations)


def test_unavailable_image_skips_only_its_container() -> None:
    empty = ImageConfig((), ())
    for init, config, message in (
        (container("a"), Unavailable("no"), "no"),
        (container("a"), empty, "the image has neither an Entrypoint nor a Cmd"),
        ({"name": "a"}, ImageConfig(("/e",), ()), "the container names no image"),
    ):
        found, decision = started(init, config)
        assert found == init
        (outcome,) = decision.outcomes
        assert (outcome.reason, outcome.message) == (Reason.IMAGE_CONFIG_UNAVAILABLE, message)
        assert changes(decision) == []


def test_excluded_container_causes_no_image_query() -> None:
    fixed = view(policy(imageConfig=RULES), nodes=[MODERN])
    for new, seen in (
        (pod(container("a", "/a")), SEEN),
        (pod(container("a", restartPolicy="Always")), SEEN),
        (pod(container("istio-init")), SEEN),
        (pod(container("a")), fixed),
        (pod(container("a")), view(policy())),
        (pod(container("a")), view(policy(imageConfig={**RULES, "lookup": "Never"}))),
    ):
        assert decide_pod(new, seen).missing_images == ()


def test_image_query_is_bounded_in_length() -> None:
    spec: Json = {
        "imagePullSecrets": [{"name": f"{n}" * 100_000} for n in range(100)],
        "serviceAccountName": "s" * 100_000,
        "nodeSelector": {"kubernetes.io/arch": "a" * 100_000},
    }
    asking = container("a", image="i" * 100_000)
    (query,) = decide_pod(pod(asking, **spec), SEEN).missing_images
    # One more than the limit of each, so that the look-up sees that the limit is exceeded.
    assert len(query.pull_secrets) == 21
    texts = (*query.pull_secrets, query.service_account, *query.architectures)
    assert {len(text) for text in texts} == {254}
    assert len(query.image) == 601


def test_image_query_has_the_rules_of_the_remedys_policy() -> None:
    other = {"lookup": "Registry", "registries": ["other.example"]}
    seen = view(
        policy("first", priority=1, imageConfig=other, remedies={"skipSELinuxRelabel": {}}),
        policy("second", imageConfig=RULES),
        policy("audit", action="Audit", imageConfig=other),
    )
    lacking = decide_pod(pod(container("a")), seen).missing_images
    assert [query.rules.registries for query in lacking] == [
        ("registry.example",), ("other.example",)
    ]  # fmt: skip


TEXTS = st.lists(st.text("$()Aa/ ", max_size=4) | st.sampled_from(["sh", "/bin/bash"]), max_size=3)


def kubelet_and_runtime(found: Json, image: tuple[list[str], list[str]]) -> list[str]:
    """Return the process of a container (containerd `WithProcessArgs`). Variables expand to `!`."""
    command = [kubelet_expands(text) for text in found.get("command") or ()]
    args = [kubelet_expands(text) for text in found.get("args") or ()]
    if not command:
        args = args or image[1]
        command = image[0]
    return [*command, *args]


@given(TEXTS, TEXTS, st.none() | TEXTS, st.sampled_from(["Auto", "Binary"]))
def test_wrapped_process_is_that_of_the_image_and_stays_so_on_reinvocation(
    entrypoint: list[str], cmd: list[str], args: list[str] | None, delivery: str
) -> None:
    seen = view(policy(imageConfig=RULES, remedies={"postInitSleep": {"delivery": delivery}}))
    init = {**container("a"), **({} if args is None else {"args": args})}
    config = ImageConfig(tuple(entrypoint), tuple(cmd))
    found, decision = started(init, config, seen)
    before = kubelet_and_runtime(init, (entrypoint, cmd))
    after = kubelet_and_runtime(found, (entrypoint, cmd))
    assert after[len(after) - len(before) :] == before
    assert (after != before) is (reasons(decision) == ["a: Applied"]) is bool(before)
    # The reinvocation finds the container wrapped, and needs no image.
    settled = patched_pod(pod(init), decision)
    again = decide_pod(settled, seen, settings=OperatorSettings(linger_image=SETTINGS.linger_image))
    if before:
        assert (again.operations, again.missing_images) == ((), ())


def test_a_long_command_is_not_copied_into_hundreds_of_containers() -> None:
    new = pod(*(container(f"c{number}") for number in range(400)))
    lacking = decide_pod(new, SEEN).missing_images
    for command in (("x" * 8_000,), ("/bin/x",)):
        decision = decide_pod(new, SEEN, images=dict.fromkeys(lacking, ImageConfig(command, ())))
        applied = [each for each in decision.outcomes if each.reason is Reason.APPLIED]
        assert len(applied) == (16 if command[0].startswith("x") else 400)
        assert {each.reason for each in decision.outcomes} <= {
            Reason.APPLIED,
            Reason.IMAGE_CONFIG_UNAVAILABLE,
        }


# Images whose name does not say what a node runs.

REGISTRIES = ["docker.io", "quay.io", "localhost"]
DIGEST = f"sha256:{'0123456789abcdef' * 4}"
CONTAINERD, DOCKER = "containerd://2.1.5", "docker://27.0.1"
CRIO, UNKNOWN = "cri-o://1.36.3", ""
SHORT = ["busybox", "busybox:1.37", "ubi9/nodejs-22:1", "a/b/c", f"busybox@{DIGEST}", "Team/app"]
WHOLE = ["docker.io/busybox", "quay.io/ubi9/nodejs-22:1", "localhost/x", f"quay.io/a@{DIGEST}"]
LOOKED_UP, LEFT = ["main: ImageConfigUnavailable"], ["main: ShortImageName"]


def on_runtimes(*runtimes: str, nodes: list[Json] | None = None) -> Snapshot:
    with_lookup = policy(
        imageConfig={"lookup": "Registry", "registries": REGISTRIES, "mirrors": {"team": "m"}},
        remedies={"postInitSleep": {"containers": ["*"], "when": "Always"}},
    )
    listed = [node(f"n{index}", runtime) for index, runtime in enumerate(runtimes)]
    classes = [runtime_class("fast", selector={"pool": "fast"})]
    return view(with_lookup, nodes=listed if nodes is None else nodes, classes=classes)


def main(image: str, args: list[str] | None = None, **spec: Any) -> Json:
    only = container("main", image=image, args=args)
    return pod(containers=[only], restartPolicy="Never", **spec)


UNSURE = [[CRIO], [UNKNOWN], ["other://1.0"], [CONTAINERD, CRIO], [DOCKER, UNKNOWN], []]


@pytest.mark.parametrize("image", SHORT)
def test_short_name_is_looked_up_only_if_every_node_takes_it_from_docker_hub(image: str) -> None:
    for runtimes in UNSURE:
        decision = decide_pod(main(image), on_runtimes(*runtimes))
        assert (runtimes, reasons(decision)) == (runtimes, LEFT)
        assert decision.missing_images == ()
        assert decision.operations[0]["path"] == "/metadata/annotations"  # It says why.
        assert len(decision.operations) == 1
        assert "ShortImageName: main" in decision.warnings[0]
    for runtimes in ([CONTAINERD], [DOCKER], [CONTAINERD, DOCKER]):
        decision = decide_pod(main(image), on_runtimes(*runtimes))
        assert (runtimes, reasons(decision)) == (runtimes, LOOKED_UP)
        assert [query.image for query in decision.missing_images] == [image]


@pytest.mark.parametrize("image", [*WHOLE, "Not An Image"])
def test_other_names_are_looked_up_on_every_runtime(image: str) -> None:
    for runtimes in UNSURE:
        assert reasons(decide_pod(main(image), on_runtimes(*runtimes))) == LOOKED_UP


def test_only_the_nodes_count_that_the_pod_could_land_on() -> None:
    plain = node("a", CONTAINERD, labels={"pool": "plain"})
    cluster = on_runtimes(nodes=[plain, node("b", CRIO, labels={"pool": "fast"})])
    spec: Json
    for spec, expected in (
        ({}, LEFT),
        ({"nodeSelector": {"pool": "plain"}}, LOOKED_UP),
        ({"nodeSelector": {"pool": "fast"}}, LEFT),
        ({"nodeName": "a"}, LOOKED_UP),
        # No known node has this label, so the pod waits for one that podsettle does not know.
        ({"nodeSelector": {"pool": "new"}}, LEFT),
    ):
        assert (spec, reasons(decide_pod(main("busybox", **spec), cluster))) == (spec, expected)


def test_command_of_docker_hub_is_not_written_into_a_pod_for_a_node_with_cri_o() -> None:
    image = "ubi9/nodejs-22:1"
    plain = on_runtimes(CONTAINERD)
    asked = decide_pod(main(image), plain).missing_images
    known = dict.fromkeys(asked, ImageConfig(("/hub",), ()))
    assert reasons(decide_pod(main(image), plain, images=known)) == ["main: Applied"]
    assert reasons(decide_pod(main(image), on_runtimes(CRIO), images=known)) == LEFT


PLACEHOLDERS = [
    # Drone: engine/convert.go and engine/const.go of drone-runner-kube
    "docker.io/drone/placeholder:1", "drone/placeholder", "m.example:5000/hub/drone/placeholder:1",
    # Vela: runtime/kubernetes/image.go of go-vela/worker
    "docker.io/kubernetes/pause:latest", f"registry.k8s.io/pause@{DIGEST}", "pause:3.10",
    # Istio fills in the image of a proxy that a pod's author customizes.
    "auto",
]  # fmt: skip
OTHER_IMAGES = [
    *("docker.io/team/placeholder", "docker.io/pause/app", "team/auto", "auto:1", "unpause")
]


def anywhere() -> Snapshot:
    lookup = {"lookup": "Registry", "registries": ["*", "*:*"]}
    remedies: Json = {
        "postInitSleep": {"containers": ["*"], "when": "Always"},
        "openFiles": {"soft": 1000},
    }
    return view(policy(imageConfig=lookup, remedies=remedies), nodes=[node("a", CONTAINERD)])


def test_placeholder_is_not_looked_up_and_the_command_of_another_image_is_used() -> None:
    for image, args in product(PLACEHOLDERS, (None, ["/bin/sh", "-c", "echo"])):
        decision = decide_pod(main(image, args), anywhere())
        assert decision.missing_images == (), image
        assert reasons(decision) == ["main: NoCommand", "main: NoCommand"], image
        assert "placeholder" in str(decision.outcomes[0])
    never_pulled = container("main", image="docker.io/team/app:dev", imagePullPolicy="Never")
    decision = decide_pod(pod(containers=[never_pulled], restartPolicy="Never"), anywhere())
    assert decision.missing_images == ()
    assert "imagePullPolicy" in str(decision.outcomes[0])
    for image in OTHER_IMAGES:
        asked = decide_pod(main(image), anywhere()).missing_images
        known = dict.fromkeys(asked, ImageConfig(("/app",), ()))
        decision = decide_pod(main(image), anywhere(), images=known)
        assert reasons(decision) == ["main: Applied", "main: Applied"], image
