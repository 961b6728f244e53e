"""Tests of postInitSleep: which containers are wrapped, and the container that copies."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.factories import (
    IMAGE,
    LINGER,
    Json,
    container,
    decide_pod,
    in_shell,
    mutate_pod,
    node,
    patched,
    pod,
    qos,
    reasons,
)
from tests.support.patches import changes
from tests.support.post_init_sleep import (
    EQUAL,
    HELPER,
    HELPER_VOLUME,
    MOUNT,
    QUICK,
    SHELL,
    SMALL,
    container_names,
    init_containers,
    make_view,
)

# The wrapped command.


def test_command_is_wrapped_by_the_helper() -> None:
    before = pod(QUICK | {"args": ["$(HOME)"], "workingDir": "/"})
    decision = decide_pod(before, make_view())
    assert reasons(decision) == ["prepare: Applied"]
    _, wrapped = init_containers(patched(before, decision))
    assert wrapped == {
        **QUICK,
        "args": ["$(HOME)"],
        "workingDir": "/",
        "command": [*LINGER, "/entrypoint", "init"],
        "volumeMounts": [MOUNT],
    }


def test_shell_command_is_wrapped_by_its_own_shell_without_the_helper() -> None:
    before = pod(SHELL | {"args": ["a", "$(b)"]}, volumes=[])
    after = mutate_pod(before, make_view())
    (wrapped,) = init_containers(after)
    assert wrapped["command"] == in_shell(
        ["/bin/sh", "-c", "exit 3"], sleep_ms=10, min_lifetime_ms=500
    )
    assert wrapped["command"][-3:] == ["/bin/sh", "-c", "exit 3"]
    assert {**wrapped, "command": None} == {**before["spec"]["initContainers"][0], "command": None}
    assert after["spec"]["volumes"] == []


def test_shell_without_a_script_is_wrapped() -> None:
    (wrapped,) = init_containers(
        mutate_pod(pod(container("a", "sh", args=["-c", "exit 3"])), make_view())
    )
    assert wrapped["command"][-1] == "sh"
    assert wrapped["args"] == ["-c", "exit 3"]


def test_wrapper_has_the_durations_of_the_policy() -> None:
    look = make_view(sleep="1.5s", minLifetime="2s")
    helper, wrapped = init_containers(mutate_pod(pod(QUICK), look))
    options = ["--sleep", "1500ms", "--min-lifetime", "2s", "--"]
    assert wrapped["command"] == ["/podsettle/linger", *options, "/entrypoint", "init"]
    assert helper["command"] == ["/linger", *options, "/linger"]
    (scripted,) = init_containers(mutate_pod(pod(SHELL), look))
    assert scripted["command"] == in_shell(SHELL["command"], sleep_ms=1500, min_lifetime_ms=2000)


def test_pod_gets_one_copying_init_container_for_several_wrapped_containers() -> None:
    before = pod(*(container(f"c{n}", f"/c{n}") for n in range(5)), SHELL)
    after = mutate_pod(before, make_view())
    assert container_names(init_containers(after)) == [
        HELPER,
        "c0",
        "c1",
        "c2",
        "c3",
        "c4",
        "script",
    ]
    assert after["spec"]["volumes"] == [HELPER_VOLUME]
    assert [c["volumeMounts"] for c in init_containers(after)[1:6]] == [[MOUNT]] * 5
    assert "volumeMounts" not in init_containers(after)[6]


@pytest.mark.parametrize(
    "fields", [{}, {"initContainers": None, "volumes": None}, {"initContainers": [], "volumes": []}]
)
def test_helper_is_injected_for_a_regular_container_alone(fields: Json) -> None:
    after = mutate_pod(pod(restartPolicy="Never", **fields), make_view(containers=["main"]))
    assert container_names(init_containers(after)) == [HELPER]
    (main,) = after["spec"]["containers"]
    assert main["command"] == [*LINGER, "/bin/main"]


def test_copying_container_installs_the_helper_and_passes_pod_security_restricted() -> None:
    helper, _ = init_containers(mutate_pod(pod(QUICK), make_view()))
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


@pytest.mark.parametrize(
    ("own", "expected"),
    [(None, None), ({"type": "RuntimeDefault"}, {"type": "RuntimeDefault"})],
)
def test_copying_container_has_a_seccomp_profile_only_if_the_wrapped_one_has(
    own: Any, expected: Any
) -> None:
    """PodSecurity `restricted` demands one of each container, and many SCCs refuse any."""
    quick = QUICK | {"securityContext": {"seccompProfile": own}}
    # A profile of the pod is inherited.
    security = {"seccompProfile": {"type": "RuntimeDefault"}}
    helper, _ = init_containers(mutate_pod(pod(quick, securityContext=security), make_view()))
    assert helper["securityContext"].get("seccompProfile") == expected


@pytest.mark.parametrize(
    ("security", "non_root"),
    [
        (None, True),
        ({}, True),
        ({"runAsUser": None}, True),
        ({"runAsUser": 1000}, True),
        ({"runAsUser": 0}, None),
    ],
)
def test_copying_container_runs_as_the_user_of_the_pod(security: Any, non_root: Any) -> None:
    helper, _ = init_containers(mutate_pod(pod(QUICK, securityContext=security), make_view()))
    assert helper["securityContext"].get("runAsNonRoot") is non_root
    assert "runAsUser" not in helper["securityContext"]
    assert "runAsGroup" not in helper["securityContext"]


# The pod's QoS class stays the same.


@pytest.mark.parametrize(
    ("first", "second", "main", "expected"),
    [
        (None, None, None, "BestEffort"),
        ({}, {"limits": {}}, {"requests": None}, "BestEffort"),
        ({"limits": {"ephemeral-storage": "1Gi"}}, None, None, "BestEffort"),
        (EQUAL, EQUAL, EQUAL, "Guaranteed"),
        (
            {"limits": SMALL | {"nvidia.com/gpu": 1}, "requests": SMALL | {"nvidia.com/gpu": 1}},
            EQUAL,
            EQUAL,
            "Guaranteed",
        ),
        (EQUAL, None, None, "Burstable"),
        (None, EQUAL, EQUAL, "Burstable"),
        ({"requests": {"cpu": "1m"}}, EQUAL, EQUAL, "Burstable"),
        (EQUAL, {"limits": {"memory": "1Gi"}}, EQUAL, "Burstable"),
    ],
)
def test_qos_class_of_the_pod_is_unchanged(
    first: Any, second: Any, main: Any, expected: str
) -> None:
    before = pod(
        container("a", "/a", resources=first),
        container("b", "/b", resources=second),
        containers=[container("main", "/main", resources=main)],
    )
    after = mutate_pod(before, make_view())
    assert container_names(init_containers(after))[0] == HELPER
    assert qos(before) == qos(after) == expected


def test_copying_container_has_the_resources_of_the_first_wrapped_container() -> None:
    before = pod(
        SHELL | {"resources": {"limits": {"cpu": "9"}}},
        QUICK | {"resources": EQUAL},
        container("later", "/x", resources={"limits": {"cpu": "8"}}),
    )
    helper, *_ = init_containers(mutate_pod(before, make_view()))
    assert helper["resources"] == EQUAL


def test_devices_huge_pages_and_claims_are_not_copied() -> None:
    resources = {
        "limits": {"cpu": 1, "nvidia.com/gpu": 1, "hugepages-2Mi": "4Mi"},
        "requests": {"nvidia.com/gpu": 1, "ephemeral-storage": "1Gi"},
        "claims": [{"name": "device"}],
    }
    helper, _ = init_containers(mutate_pod(pod(QUICK | {"resources": resources}), make_view()))
    assert helper["resources"] == {"limits": {"cpu": 1}, "requests": {"ephemeral-storage": "1Gi"}}


# The selection of containers.


@pytest.mark.parametrize(
    ("globs", "wrapped"),
    [
        (["*"], ["a", "ab", "b"]),
        (["a"], ["a"]),
        (["a*"], ["a", "ab"]),
        (["?"], ["a", "b"]),
    ],
)
def test_init_containers_are_selected_by_globs(globs: list[str], wrapped: list[str]) -> None:
    before = pod(container("a", "x"), container("ab", "x"), container("b", "x"))
    decision = decide_pod(before, make_view(initContainers=globs))
    assert [o.container for o in decision.outcomes if o.changed] == wrapped


@pytest.mark.parametrize("globs", [["*"], ["a*"], ["*a*a*a*a*a*b", "a*"]])
def test_container_with_an_overlong_name_is_not_wrapped(globs: list[str]) -> None:
    before = pod(container("a" * 300_000, "x"), container("a", "x"))
    decision = decide_pod(before, make_view(initContainers=globs))
    assert [o.container for o in decision.outcomes] == ["a"]


@pytest.mark.parametrize(
    ("policy_", "reason"),
    [
        ("Never", "Applied"),
        ("OnFailure", "Applied"),
        ("Always", "LongRunning"),
        (None, "LongRunning"),
    ],
)
def test_regular_containers_are_wrapped_only_in_pods_that_run_to_completion(
    policy_: str | None, reason: str
) -> None:
    before = pod(restartPolicy=policy_)
    assert reasons(decide_pod(before, make_view(containers=["*"]))) == [f"main: {reason}"]
    assert reasons(decide_pod(before, make_view())) == []


@pytest.mark.parametrize("probe", ["livenessProbe", "readinessProbe", "startupProbe"])
def test_regular_container_with_a_probe_is_not_wrapped(probe: str) -> None:
    main = container("main", "/main", **{probe: {"exec": {"command": ["x"]}}})
    before = pod(containers=[main], restartPolicy="Never")
    assert reasons(decide_pod(before, make_view(containers=["*"]))) == ["main: LongRunning"]
    main[probe] = None
    assert reasons(decide_pod(before, make_view(containers=["*"]))) == ["main: Applied"]


def test_init_containers_of_a_long_running_pod_are_wrapped() -> None:
    assert reasons(decide_pod(pod(QUICK, restartPolicy="Always"), make_view())) == [
        "prepare: Applied"
    ]


@pytest.mark.parametrize(
    ("never", "reason"),
    [
        (container("proxy", "/proxy", restartPolicy="Always"), "NativeSidecar"),
        (container("sidecar-log-results", "/results"), "NativeSidecar"),
        (container("istio-init", "/pilot-agent"), "MeshInitContainer"),
        (container("istio-validation", "/pilot-agent"), "MeshInitContainer"),
        (container("linkerd-init", "/linkerd"), "MeshInitContainer"),
        (container("none"), "NoCommand"),
        (container("empty", command=[]), "NoCommand"),
        (container("null", command=None), "NoCommand"),
        (container("only-args", args=["mkdir", "-p", "x"]), "NoCommand"),
    ],
)
def test_excluded_container_is_unchanged(never: Json, reason: str) -> None:
    decision = decide_pod(pod(never), make_view())
    assert reasons(decision) == [f"{never['name']}: {reason}"]
    assert changes(decision) == []


def test_excluded_container_does_not_prevent_others_from_being_wrapped() -> None:
    sidecar = container("proxy", "/proxy", restartPolicy="Always")
    before = pod(container("istio-init", "/x"), sidecar, QUICK)
    after = mutate_pod(before, make_view())
    assert container_names(init_containers(after)) == [HELPER, "istio-init", "proxy", "prepare"]
    assert init_containers(after)[1:3] == init_containers(before)[:2]


def test_tekton_sidecar_among_regular_containers_is_not_wrapped() -> None:
    before = pod(containers=[container("sidecar-db", "/db")], restartPolicy="Never")
    assert reasons(decide_pod(before, make_view(containers=["*"]))) == ["sidecar-db: NativeSidecar"]


@pytest.mark.parametrize(
    ("when", "runtime", "reason"),
    [
        ("NodesNeedIt", "cri-o://1.33.12", "Applied"),
        ("NodesNeedIt", "cri-o://1.33.13", "NotNeeded"),
        ("NodesNeedIt", "containerd://2.1.5", "NotNeeded"),
        ("Always", "cri-o://1.33.13", "Applied"),
    ],
)
def test_remedy_is_skipped_if_no_node_needs_it(when: str, runtime: str, reason: str) -> None:
    decision = decide_pod(pod(QUICK), make_view(node("n", runtime), when=when))
    assert reasons(decision) == [f"prepare: {reason}"]


def test_only_nodes_that_the_pod_could_land_on_count() -> None:
    nodes = [node("a", labels={"os": "old"}), node("b", "cri-o://1.36.0", labels={"os": "new"})]
    assert reasons(decide_pod(pod(QUICK, nodeSelector={"os": "new"}), make_view(*nodes))) == [
        "prepare: NotNeeded"
    ]
    assert reasons(decide_pod(pod(QUICK, nodeSelector={"os": "old"}), make_view(*nodes))) == [
        "prepare: Applied"
    ]
