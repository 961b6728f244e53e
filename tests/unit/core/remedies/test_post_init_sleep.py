"""Tests of postInitSleep: what is wrapped, how, and pods that others have changed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.data.earlier_wrapper import EARLIER_SCRIPT
from tests.support.factories import (
    IMAGE,
    LINGER,
    MODERN,
    Json,
    container,
    decide_pod,
    in_shell,
    init_containers,
    mutate_pod,
    node,
    patched,
    pod,
    policy,
    reasons,
    runtime_class,
    view,
)
from tests.support.patches import changes, only_reason
from tests.support.post_init_sleep import (
    HELPER,
    HELPER_VOLUME,
    MOUNT,
    QUICK,
    SHELL,
    container_names,
    make_view,
)
from webhook.core.admission.summary import summary_of
from webhook.core.defects.versions import Version
from webhook.core.remedies import shell_wrapper

# The wrapped command.


def test_wrapper_has_the_durations_of_the_policy_and_a_shell_needs_no_helper() -> None:
    look = make_view(sleep="1.5s", minLifetime="2s")
    helper, wrapped = init_containers(mutate_pod(pod(QUICK), look))
    options = ["--sleep", "1500ms", "--min-lifetime", "2s", "--"]
    assert wrapped["command"] == ["/podsettle/linger", *options, "/entrypoint", "init"]
    assert helper["command"] == ["/linger", *options, "/linger"]
    before = pod(SHELL | {"args": ["a", "$(b)"]}, volumes=[])
    after = mutate_pod(before, look)
    before["spec"]["initContainers"][0]["command"] = in_shell(
        ["/bin/sh", "-c", "exit 3"], sleep_ms=1500, min_lifetime_ms=2000
    )
    assert after["spec"] == before["spec"]


def test_one_init_container_copies_the_helper_for_several_wrapped_containers() -> None:
    quick = QUICK | {"args": ["$(HOME)"], "workingDir": "/"}
    before = pod(quick, container("other", "/other"), SHELL)
    assert reasons(decide_pod(before, make_view())) == [
        *("prepare: Applied", "other: Applied", "script: Applied")
    ]
    after = mutate_pod(before, make_view())
    assert container_names(init_containers(after)) == [HELPER, "prepare", "other", "script"]
    assert after["spec"]["volumes"] == [HELPER_VOLUME]
    helper, wrapped, *others = init_containers(after)
    command = [*LINGER, "/entrypoint", "init"]
    assert wrapped == quick | {"command": command, "volumeMounts": [MOUNT]}
    assert [each.get("volumeMounts") for each in others] == [[MOUNT], None]
    assert helper == {
        "name": HELPER,
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/linger", *LINGER[1:], "/linger"],
        "args": ["install", "/podsettle/linger"],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
        },
        "volumeMounts": [{"name": HELPER, "mountPath": "/podsettle"}],
    }


def test_devices_huge_pages_and_claims_are_not_copied() -> None:
    resources = {
        "limits": {"cpu": 1, "nvidia.com/gpu": 1, "hugepages-2Mi": "4Mi"},
        "requests": {"nvidia.com/gpu": 1, "ephemeral-storage": "1Gi"},
        "claims": [{"name": "device"}],
    }
    helper, _ = init_containers(mutate_pod(pod(QUICK | {"resources": resources}), make_view()))
    assert helper["resources"] == {"limits": {"cpu": 1}, "requests": {"ephemeral-storage": "1Gi"}}


# The selection of containers.


PROBES = ["livenessProbe", "readinessProbe", "startupProbe"]


def test_regular_container_is_wrapped_only_if_it_runs_to_completion() -> None:
    cases: list[tuple[str | None, Json, str]] = [
        ("Never", {}, "Applied"),
        ("OnFailure", {}, "Applied"),
        ("Always", {}, "LongRunning"),
        (None, {}, "LongRunning"),
        ("Never", {"restartPolicy": "Always"}, "LongRunning"),
        ("Always", {"restartPolicy": "OnFailure"}, "Applied"),
        ("Never", dict.fromkeys(PROBES), "Applied"),
        *(("Never", {probe: {"exec": {"command": ["x"]}}}, "LongRunning") for probe in PROBES),
    ]
    for of_pod, fields, reason in cases:
        before = pod(containers=[container("main", "/main", **fields)], restartPolicy=of_pod)
        found = only_reason(before, make_view(containers=["*"]))
        assert (fields, found) == (fields, f"main: {reason}")
        assert reasons(decide_pod(before, make_view())) == []


def test_excluded_container_is_unchanged() -> None:
    cases = [
        (container("proxy", "/proxy", restartPolicy="Always"), "NativeSidecar"),
        (container("sidecar-log-results", "/results"), "NativeSidecar"),
        (container("istio-init", "/pilot-agent"), "MeshInitContainer"),
        (container("istio-validation", "/pilot-agent"), "MeshInitContainer"),
        (container("linkerd-init", "/linkerd"), "MeshInitContainer"),
        (container("none"), "NoCommand"),
        (container("empty", command=[]), "NoCommand"),
        (container("null", command=None), "NoCommand"),
        (container("only-args", args=["mkdir", "-p", "x"]), "NoCommand"),
    ]
    for never, reason in cases:
        assert only_reason(pod(never), make_view()) == f"{never['name']}: {reason}"


def test_remedy_is_skipped_if_no_node_needs_it() -> None:
    for when, runtime, reason in (
        ("NodesNeedIt", "cri-o://1.33.12", "Applied"),
        ("NodesNeedIt", "cri-o://1.33.13", "NotNeeded"),
        ("NodesNeedIt", "containerd://2.1.5", "NotNeeded"),
        ("Always", "cri-o://1.33.13", "Applied"),
    ):
        seen = make_view(node("n", runtime), when=when)
        assert only_reason(pod(QUICK), seen) == f"prepare: {reason}"


STDIN = container("ask", "/bin/sh", stdin=True)
TTY = container("ask", "sh", tty=True)


@pytest.mark.parametrize(
    ("delivery", "found", "how"),
    [
        ("Auto", QUICK, "helper"),
        ("Auto", SHELL, "shell"),
        ("Auto", STDIN, "helper"),
        ("Auto", TTY, "helper"),
        ("Auto", SHELL | {"stdin": False, "tty": None}, "shell"),
        ("Shell", SHELL, "shell"),
        ("Binary", QUICK, "helper"),
        ("Binary", SHELL, "helper"),
        ("ImageVolume", QUICK, "image"),
        ("ImageVolume", SHELL, "image"),
    ],
)
def test_delivery_decides_how_the_wrapper_is_injected(delivery: str, found: Json, how: str) -> None:
    before = pod(found)
    after = mutate_pod(before, make_view(delivery=delivery))
    wrapped = init_containers(after)[-1]
    original = found["command"]
    assert wrapped["command"][-len(original) :] == original
    if how == "shell":
        assert shell_wrapper.is_wrapped(wrapped["command"])
        assert "volumes" not in after["spec"]
        assert container_names(init_containers(after)) == [found["name"]]
        return
    assert wrapped["command"] == [*LINGER, *original]
    assert wrapped["volumeMounts"] == [MOUNT]
    if how == "helper":
        assert after["spec"]["volumes"] == [HELPER_VOLUME]
        assert container_names(init_containers(after)) == [HELPER, found["name"]]
    else:
        image = {"reference": IMAGE, "pullPolicy": "IfNotPresent"}
        assert after["spec"]["volumes"] == [{"name": HELPER, "image": image}]
        assert container_names(init_containers(after)) == [found["name"]]


def test_shell_delivery_never_injects_the_helper() -> None:
    for found, reason in (
        (QUICK, "NoShell"),
        (STDIN, "Interactive"),
        (TTY, "Interactive"),
        (container("a"), "NoCommand"),
    ):
        seen = make_view(delivery="Shell")
        assert only_reason(pod(found), seen) == f"{found['name']}: {reason}"
        assert len(decide_pod(pod(found), seen).warnings) == 1


OF_POLICY: Json = {"runtimeClass": {"name": "kata"}}


def test_auto_uses_an_image_volume_if_every_node_and_the_runtime_support_it() -> None:
    cases: list[tuple[Version | None, list[Json], Json, Json, bool]] = [
        (Version(1, 36), [MODERN], {}, {}, True),
        (None, [MODERN], {}, {}, True),  # A kubelet is never newer than its API server.
        (Version(1, 35), [MODERN], {}, {}, False),
        (Version(1, 36), [], {}, {}, False),
        (None, [], {}, {}, False),
        (None, [MODERN, node("old", "containerd://1.7.27", "v1.36.0")], {}, {}, False),
        (None, [MODERN, node("old", "containerd://2.1.5", "v1.35.0")], {}, {}, False),
        (None, [MODERN], {"hostUsers": True}, {}, True),
        (None, [MODERN], {"hostUsers": False}, {}, False),
        (None, [MODERN], {"runtimeClassName": "kata"}, {}, False),
        (None, [MODERN], {}, OF_POLICY, False),
        (None, [MODERN], {"labels": {"eks.amazonaws.com/fargate-profile": "fp"}}, {}, False),
    ]
    for server, nodes, fields, beside, by_image in cases:
        chosen = policy(remedies={"postInitSleep": {"when": "Always"}, **beside})
        seen = view(chosen, classes=[runtime_class("kata")], nodes=nodes, server=server)
        after = mutate_pod(pod(QUICK, **fields), seen)
        (volume,) = after["spec"]["volumes"]
        assert ("image" in volume) is by_image, (server, nodes, fields, beside)
        assert len(init_containers(after)) == (1 if by_image else 2)


def test_image_volume_needs_a_server_and_nodes_that_support_it() -> None:
    for server, old, reason in (
        (Version(1, 34, 9), [], "ServerTooOld"),
        (Version(1, 35, 0, final=False), [], "ServerTooOld"),
        (Version(1, 35), [], "Applied"),
        (None, [], "Applied"),
        (Version(1, 36), [node("old", "containerd://1.7.27", "v1.36.0")], "ServerTooOld"),
        (Version(1, 36), [node("old", "containerd://2.1.5", "v1.30.0")], "ServerTooOld"),
    ):
        seen = make_view(*old, server=server, delivery="ImageVolume", when="Always")
        assert only_reason(pod(QUICK), seen) == f"prepare: {reason}", (server, old)


def mounting(name: str, path: str, **fields: Any) -> Json:
    return QUICK | {"volumeMounts": [{"name": name, "mountPath": path, **fields}]}


PATHS = ["/podsettle", "/podsettle/", "/podsettle/data", "//podsettle", "podsettle"]


@pytest.mark.parametrize(
    "before",
    [
        pod(QUICK, volumes=[{"name": HELPER, "configMap": {"name": "x"}}]),
        pod(QUICK, volumes=[{"name": HELPER, "persistentVolumeClaim": {"claimName": "x"}}]),
        pod(container(HELPER, "/something"), QUICK),
        pod(container(HELPER), QUICK),
        pod(QUICK, containers=[container(HELPER, "/something")]),
        *(pod(mounting("v", path)) for path in PATHS),
        pod(QUICK | {"volumeDevices": [{"name": "v", "devicePath": "/podsettle"}]}),
        pod(mounting(HELPER, "/podsettle/x")),
        pod(mounting(HELPER, "/podsettle", subPath="x")),
    ],
)
def test_helper_is_not_injected_if_its_name_is_taken(before: Json) -> None:
    assert only_reason(before, make_view()) == "prepare: NameConflict"
    assert len(decide_pod(before, make_view()).warnings) == 1
    before["spec"]["initContainers"] = [SHELL]
    assert only_reason(before, make_view()) == "script: Applied"


def test_pod_wrapped_by_an_earlier_version_is_unchanged() -> None:
    """During an upgrade replicas of both versions answer."""
    look = make_view(delivery="Shell", containers=["*"])
    pod_now = mutate_pod(pod(SHELL, restartPolicy="Never"), look)
    (script,) = pod_now["spec"]["initContainers"]
    assert script["command"][2] == shell_wrapper.SCRIPT
    script["command"][2] = EARLIER_SCRIPT
    again = decide_pod(pod_now, look)
    assert "script: AlreadySettled" in reasons(again)
    assert again.operations == ()


@pytest.mark.parametrize(
    ("wrapped_with", "duration"),
    [
        ({}, "at least 500 ms"),
        ({"minLifetime": "200ms"}, "as long as its wrapper says"),
        ({"minLifetime": "0s", "sleep": "1s"}, "as long as its wrapper says"),
        ({"sleep": "1s"}, "as long as its wrapper says"),
    ],
)
@pytest.mark.parametrize("quick", [QUICK, SHELL], ids=["helper", "shell"])
def test_summary_of_a_wrapped_container_quotes_no_duration_that_it_does_not_have(
    quick: Json, wrapped_with: Json, duration: str
) -> None:
    document = mutate_pod(pod(quick), make_view(**wrapped_with))
    decision = decide_pod(document, make_view())
    assert reasons(decision) == [f"{quick['name']}: AlreadySettled"]
    expected = f"{quick['name']} is already kept alive for {duration}."
    assert summary_of(decision.outcomes) == expected


def test_helper_moves_before_a_container_added_before_it_if_that_is_wrapped() -> None:
    once = mutate_pod(pod(QUICK), make_view())
    init_containers(once).insert(0, container("early", "/early"))
    twice = mutate_pod(once, make_view())
    assert container_names(init_containers(twice)) == [HELPER, "early", "prepare"]
    assert init_containers(twice)[0] == init_containers(once)[1]
    assert init_containers(twice)[1]["command"] == [*LINGER, "/early"]
    sidecar = container("proxy", "/x", restartPolicy="Always")
    for early in (container("istio-init"), sidecar, SHELL):
        init_containers(once)[0] = early
        twice = mutate_pod(once, make_view())
        assert container_names(init_containers(twice)) == [early["name"], HELPER, "prepare"]


@pytest.mark.parametrize("wrapped_first", [False, True])
def test_duplicate_helper_container_is_left_unchanged(wrapped_first: bool) -> None:
    """The API server refuses such a pod, so it is not reported as an internal error."""
    before = patched(pod(QUICK), decide_pod(pod(QUICK), make_view()))
    helper, wrapped = before["spec"]["initContainers"]
    late = container("late", "/x")
    inits = [wrapped, helper, helper] if wrapped_first else [helper, helper]
    before["spec"]["initContainers"] = [*inits, late]
    decision = decide_pod(before, make_view())
    assert reasons(decision)[-1] == "late: NameConflict"
    assert changes(decision) == []
