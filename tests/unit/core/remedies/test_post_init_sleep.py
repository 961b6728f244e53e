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
    decided,
    in_shell,
    node,
    patched,
    pod,
    policy,
    qos,
    runtime_class,
    settled,
    view,
    why,
)
from webhook.cluster.snapshot import Snapshot
from webhook.core.admission.decide import OperatorSettings
from webhook.core.defects.versions import Version
from webhook.core.remedies import shell_wrapper

QUICK = container("prepare", "/entrypoint", "init")
SHELL = container("script", "/bin/sh", "-c", "exit 3")
MOUNT = {"name": "podsettle-linger", "mountPath": "/podsettle", "readOnly": True}
HELPER = "podsettle-linger"
HELPER_VOLUME = {"name": HELPER, "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}


def seen(*nodes: Json, server: Version | None = None, **settings: Any) -> Snapshot:
    return view(policy(remedies={"postInitSleep": settings}), nodes=nodes, server=server)


def inits(after: Json) -> list[Json]:
    found: list[Json] = after["spec"].get("initContainers", [])
    return found


def names(containers: list[Json]) -> list[str]:
    return [found["name"] for found in containers]


# The wrapped command.


def test_command_is_wrapped_by_the_helper() -> None:
    before = pod(QUICK | {"args": ["$(HOME)"], "workingDir": "/"})
    decision = decided(before, seen())
    assert why(decision) == ["prepare: Applied"]
    _, wrapped = inits(patched(before, decision))
    assert wrapped == {
        **QUICK,
        "args": ["$(HOME)"],
        "workingDir": "/",
        "command": [*LINGER, "/entrypoint", "init"],
        "volumeMounts": [MOUNT],
    }


def test_shell_command_is_wrapped_by_its_own_shell_without_the_helper() -> None:
    before = pod(SHELL | {"args": ["a", "$(b)"]}, volumes=[])
    after = settled(before, seen())
    (wrapped,) = inits(after)
    assert wrapped["command"] == in_shell(
        ["/bin/sh", "-c", "exit 3"], sleep_ms=10, min_lifetime_ms=500
    )
    assert wrapped["command"][-3:] == ["/bin/sh", "-c", "exit 3"]
    assert {**wrapped, "command": None} == {**before["spec"]["initContainers"][0], "command": None}
    assert after["spec"]["volumes"] == []


def test_shell_without_a_script_is_wrapped() -> None:
    (wrapped,) = inits(settled(pod(container("a", "sh", args=["-c", "exit 3"])), seen()))
    assert wrapped["command"][-1] == "sh"
    assert wrapped["args"] == ["-c", "exit 3"]


def test_wrapper_has_the_durations_of_the_policy() -> None:
    look = seen(sleep="1.5s", minLifetime="2s")
    helper, wrapped = inits(settled(pod(QUICK), look))
    options = ["--sleep", "1500ms", "--min-lifetime", "2s", "--"]
    assert wrapped["command"] == ["/podsettle/linger", *options, "/entrypoint", "init"]
    assert helper["command"] == ["/linger", *options, "/linger"]
    (scripted,) = inits(settled(pod(SHELL), look))
    assert scripted["command"] == in_shell(SHELL["command"], sleep_ms=1500, min_lifetime_ms=2000)


def test_pod_gets_one_copying_init_container_for_several_wrapped_containers() -> None:
    before = pod(*(container(f"c{n}", f"/c{n}") for n in range(5)), SHELL)
    after = settled(before, seen())
    assert names(inits(after)) == [HELPER, "c0", "c1", "c2", "c3", "c4", "script"]
    assert after["spec"]["volumes"] == [HELPER_VOLUME]
    assert [c["volumeMounts"] for c in inits(after)[1:6]] == [[MOUNT]] * 5
    assert "volumeMounts" not in inits(after)[6]


@pytest.mark.parametrize(
    "fields", [{}, {"initContainers": None, "volumes": None}, {"initContainers": [], "volumes": []}]
)
def test_helper_is_injected_for_a_regular_container_alone(fields: Json) -> None:
    after = settled(pod(restartPolicy="Never", **fields), seen(containers=["main"]))
    assert names(inits(after)) == [HELPER]
    (main,) = after["spec"]["containers"]
    assert main["command"] == [*LINGER, "/bin/main"]


def test_copying_container_installs_the_helper_and_passes_pod_security_restricted() -> None:
    helper, _ = inits(settled(pod(QUICK), seen()))
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
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [{"name": HELPER, "mountPath": "/podsettle"}],
    }


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
    helper, _ = inits(settled(pod(QUICK, securityContext=security), seen()))
    assert helper["securityContext"].get("runAsNonRoot") is non_root
    assert "runAsUser" not in helper["securityContext"]
    assert "runAsGroup" not in helper["securityContext"]


# The pod's QoS class stays the same.

SMALL = {"cpu": "5m", "memory": "5Mi"}
EQUAL = {"limits": SMALL, "requests": SMALL}


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
    after = settled(before, seen())
    assert names(inits(after))[0] == HELPER
    assert qos(before) == qos(after) == expected


def test_copying_container_has_the_resources_of_the_first_wrapped_container() -> None:
    before = pod(
        SHELL | {"resources": {"limits": {"cpu": "9"}}},
        QUICK | {"resources": EQUAL},
        container("later", "/x", resources={"limits": {"cpu": "8"}}),
    )
    helper, *_ = inits(settled(before, seen()))
    assert helper["resources"] == EQUAL


def test_devices_huge_pages_and_claims_are_not_copied() -> None:
    resources = {
        "limits": {"cpu": 1, "nvidia.com/gpu": 1, "hugepages-2Mi": "4Mi"},
        "requests": {"nvidia.com/gpu": 1, "ephemeral-storage": "1Gi"},
        "claims": [{"name": "device"}],
    }
    helper, _ = inits(settled(pod(QUICK | {"resources": resources}), seen()))
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
    decision = decided(before, seen(initContainers=globs))
    assert [o.container for o in decision.outcomes if o.changed] == wrapped


@pytest.mark.parametrize("globs", [["*"], ["a*"], ["*a*a*a*a*a*b", "a*"]])
def test_container_with_an_overlong_name_is_not_wrapped(globs: list[str]) -> None:
    before = pod(container("a" * 300_000, "x"), container("a", "x"))
    decision = decided(before, seen(initContainers=globs))
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
    assert why(decided(before, seen(containers=["*"]))) == [f"main: {reason}"]
    assert why(decided(before, seen())) == []


@pytest.mark.parametrize("probe", ["livenessProbe", "readinessProbe", "startupProbe"])
def test_regular_container_with_a_probe_is_not_wrapped(probe: str) -> None:
    main = container("main", "/main", **{probe: {"exec": {"command": ["x"]}}})
    before = pod(containers=[main], restartPolicy="Never")
    assert why(decided(before, seen(containers=["*"]))) == ["main: LongRunning"]
    main[probe] = None
    assert why(decided(before, seen(containers=["*"]))) == ["main: Applied"]


def test_init_containers_of_a_long_running_pod_are_wrapped() -> None:
    assert why(decided(pod(QUICK, restartPolicy="Always"), seen())) == ["prepare: Applied"]


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
    decision = decided(pod(never), seen())
    assert why(decision) == [f"{never['name']}: {reason}"]
    assert decision.operations == ()


def test_excluded_container_does_not_prevent_others_from_being_wrapped() -> None:
    sidecar = container("proxy", "/proxy", restartPolicy="Always")
    before = pod(container("istio-init", "/x"), sidecar, QUICK)
    after = settled(before, seen())
    assert names(inits(after)) == [HELPER, "istio-init", "proxy", "prepare"]
    assert inits(after)[1:3] == inits(before)[:2]


def test_tekton_sidecar_among_regular_containers_is_not_wrapped() -> None:
    before = pod(containers=[container("sidecar-db", "/db")], restartPolicy="Never")
    assert why(decided(before, seen(containers=["*"]))) == ["sidecar-db: NativeSidecar"]


# The setting `when`.


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
    decision = decided(pod(QUICK), seen(node("n", runtime), when=when))
    assert why(decision) == [f"prepare: {reason}"]


def test_only_nodes_that_the_pod_could_land_on_count() -> None:
    nodes = [node("a", labels={"os": "old"}), node("b", "cri-o://1.36.0", labels={"os": "new"})]
    assert why(decided(pod(QUICK, nodeSelector={"os": "new"}), seen(*nodes))) == [
        "prepare: NotNeeded"
    ]
    assert why(decided(pod(QUICK, nodeSelector={"os": "old"}), seen(*nodes))) == [
        "prepare: Applied"
    ]


# The setting `delivery`.

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
    after = settled(before, seen(delivery=delivery))
    wrapped = inits(after)[-1]
    original = found["command"]
    assert wrapped["command"][-len(original) :] == original
    if how == "shell":
        assert shell_wrapper.is_wrapped(wrapped["command"])
        assert "volumes" not in after["spec"]
        assert names(inits(after)) == [found["name"]]
        return
    assert wrapped["command"] == [*LINGER, *original]
    assert wrapped["volumeMounts"] == [MOUNT]
    if how == "helper":
        assert after["spec"]["volumes"] == [HELPER_VOLUME]
        assert names(inits(after)) == [HELPER, found["name"]]
    else:
        image = {"reference": IMAGE, "pullPolicy": "IfNotPresent"}
        assert after["spec"]["volumes"] == [{"name": HELPER, "image": image}]
        assert names(inits(after)) == [found["name"]]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (QUICK, "NoShell"),
        (STDIN, "Interactive"),
        (TTY, "Interactive"),
        (container("a"), "NoCommand"),
    ],
)
def test_shell_delivery_never_injects_the_helper(found: Json, reason: str) -> None:
    decision = decided(pod(found), seen(delivery="Shell"))
    assert why(decision) == [f"{found['name']}: {reason}"]
    assert decision.operations == ()
    assert len(decision.warnings) == 1


@pytest.mark.parametrize(
    ("server", "nodes", "by_image"),
    [
        (Version(1, 36), [MODERN], True),
        (Version(1, 37), [MODERN], True),
        (None, [MODERN], True),  # A kubelet is never newer than its API server.
        (Version(1, 35), [MODERN], False),
        (Version(1, 36), [], False),
        (None, [], False),
        (Version(1, 36), [MODERN, node("old", "containerd://1.7.27", "v1.36.0")], False),
        (Version(1, 36), [MODERN, node("old", "containerd://2.1.5", "v1.35.0")], False),
    ],
)
def test_auto_uses_an_image_volume_if_every_node_supports_it(
    server: Version | None, nodes: list[Json], by_image: bool
) -> None:
    after = settled(pod(QUICK), seen(*nodes, server=server, when="Always"))
    (volume,) = after["spec"]["volumes"]
    assert ("image" in volume) is by_image
    assert len(inits(after)) == (1 if by_image else 2)


def test_binary_copies_the_helper_even_if_nodes_support_image_volumes() -> None:
    after = settled(
        pod(QUICK), seen(MODERN, server=Version(1, 36), when="Always", delivery="Binary")
    )
    assert after["spec"]["volumes"] == [HELPER_VOLUME]


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (Version(1, 34, 9), "ServerTooOld"),
        (Version(1, 35, 0, final=False), "ServerTooOld"),
        (Version(1, 35), "Applied"),
        (Version(1, 36), "Applied"),
        (None, "Applied"),
    ],
)
def test_image_volume_needs_a_server_that_supports_it(server: Version | None, reason: str) -> None:
    decision = decided(pod(QUICK), seen(server=server, delivery="ImageVolume"))
    assert why(decision) == [f"prepare: {reason}"]


@pytest.mark.parametrize(
    "old",
    [
        node("old", "containerd://1.7.27", "v1.36.0"),
        node("old", "containerd://2.1.5", "v1.30.0"),
        node("old", "cri-o://1.30.1", "v1.30.1"),
    ],
    ids=["the runtime", "the kubelet", "both"],
)
def test_image_volume_needs_nodes_that_support_it(old: Json) -> None:
    """`ServerTooOld`: the API server or a node does not support what the remedy needs."""
    look = seen(old, server=Version(1, 36), delivery="ImageVolume", when="Always")
    decision = decided(pod(QUICK), look)
    assert why(decision) == ["prepare: ServerTooOld"]
    assert decision.operations == ()


@pytest.mark.parametrize("delivery", ["Auto", "Binary", "ImageVolume"])
def test_only_shells_are_wrapped_without_a_helper_image(delivery: str) -> None:
    decision = decided(pod(QUICK), seen(delivery=delivery), settings=OperatorSettings())
    assert why(decision) == ["prepare: HelperImageMissing"]
    assert decision.operations == ()
    shell = decided(pod(SHELL), seen(delivery="Auto"), settings=OperatorSettings())
    assert why(shell) == ["script: Applied"]


# Names that the pod already uses.


@pytest.mark.parametrize(
    "before",
    [
        pod(QUICK, volumes=[{"name": HELPER, "configMap": {"name": "x"}}]),
        pod(QUICK, volumes=[{"name": HELPER, "persistentVolumeClaim": {"claimName": "x"}}]),
        pod(container(HELPER, "/something"), QUICK),
        pod(container(HELPER), QUICK),
        pod(QUICK | {"volumeMounts": [{"name": "v", "mountPath": "/podsettle"}]}),
        pod(QUICK | {"volumeMounts": [{"name": "v", "mountPath": "/podsettle/"}]}),
        pod(QUICK | {"volumeMounts": [{"name": "v", "mountPath": "/podsettle/data"}]}),
        pod(QUICK, containers=[container(HELPER, "/something")]),
        pod(QUICK | {"volumeMounts": [{"name": "v", "mountPath": "//podsettle"}]}),
        pod(QUICK | {"volumeMounts": [{"name": "v", "mountPath": "podsettle"}]}),
        pod(QUICK | {"volumeDevices": [{"name": "v", "devicePath": "/podsettle"}]}),
    ],
    ids=[
        "a volume", "a claim", "an init container", "one without a command", "the path",
        "the path with a slash", "a path below it", "a regular container",
        "the path with two slashes", "a relative path", "a device",
    ],
)  # fmt: skip
def test_helper_is_not_injected_if_its_name_is_taken(before: Json) -> None:
    decision = decided(before, seen())
    assert why(decision) == ["prepare: NameConflict"]
    assert decision.operations == ()
    assert len(decision.warnings) == 1


@pytest.mark.parametrize("wrapped_first", [False, True])
def test_duplicate_helper_container_is_left_unchanged(wrapped_first: bool) -> None:
    """The API server refuses such a pod, so it is not reported as an internal error."""
    before = patched(pod(QUICK), decided(pod(QUICK), seen()))
    helper, wrapped = before["spec"]["initContainers"]
    late = container("late", "/x")
    inits = [wrapped, helper, helper] if wrapped_first else [helper, helper]
    before["spec"]["initContainers"] = [*inits, late]
    decision = decided(before, seen())
    assert why(decision)[-1] == "late: NameConflict"
    assert decision.operations == ()


def test_mount_path_with_the_same_prefix_is_no_conflict() -> None:
    mounts = [{"name": "v", "mountPath": "/podsettle-data"}]
    assert why(decided(pod(QUICK | {"volumeMounts": mounts}), seen())) == ["prepare: Applied"]


def test_shell_is_wrapped_even_if_the_helpers_names_are_taken() -> None:
    before = pod(SHELL, volumes=[{"name": HELPER, "configMap": {"name": "x"}}])
    assert why(decided(before, seen())) == ["script: Applied"]


# Repeated calls, with changes by other webhooks in between.


@pytest.mark.parametrize("delivery", ["Auto", "Binary", "ImageVolume"])
def test_second_call_changes_nothing(delivery: str) -> None:
    look = seen(delivery=delivery, containers=["*"])
    once = settled(pod(QUICK, SHELL, restartPolicy="Never"), look)
    again = decided(once, look)
    assert why(again) == [f"{name}: AlreadySettled" for name in ("prepare", "script", "main")]
    assert again.operations == ()


def test_pod_wrapped_by_an_earlier_version_is_unchanged() -> None:
    """During an upgrade replicas of both versions answer."""
    look = seen(delivery="Shell", containers=["*"])
    pod_now = settled(pod(SHELL, restartPolicy="Never"), look)
    (script,) = pod_now["spec"]["initContainers"]
    assert script["command"][2] == shell_wrapper.SCRIPT
    script["command"][2] = EARLIER_SCRIPT
    again = decided(pod_now, look)
    assert "script: AlreadySettled" in why(again)
    assert again.operations == ()


def test_container_added_later_uses_the_existing_helper() -> None:
    once = settled(pod(QUICK), seen())
    inits(once).append(container("late", "/late"))
    twice = settled(once, seen())
    assert names(inits(twice)) == [HELPER, "prepare", "late"]
    assert inits(twice)[2]["command"] == [*LINGER, "/late"]
    assert len(twice["spec"]["volumes"]) == 1


def test_helper_moves_before_a_container_added_before_it() -> None:
    once = settled(pod(QUICK), seen())
    inits(once).insert(0, container("early", "/early"))
    twice = settled(once, seen())
    assert names(inits(twice)) == [HELPER, "early", "prepare"]
    assert inits(twice)[0] == inits(once)[1]
    assert inits(twice)[1]["command"] == [*LINGER, "/early"]
    assert decided(twice, seen()).operations == ()


def test_helper_moves_before_a_reordered_wrapped_container() -> None:
    once = settled(pod(QUICK), seen())
    inits(once).reverse()
    decision = decided(once, seen())
    assert names(inits(patched(once, decision))) == [HELPER, "prepare"]
    assert [operation["op"] for operation in decision.operations] == ["move"]


@pytest.mark.parametrize(
    "early",
    [container("istio-init"), container("proxy", "/x", restartPolicy="Always"), SHELL],
    ids=["mesh", "sidecar", "shell"],
)
def test_helper_stays_after_a_container_that_is_not_wrapped(early: Json) -> None:
    once = settled(pod(QUICK), seen())
    inits(once).insert(0, early)
    twice = settled(once, seen())
    assert names(inits(twice)) == [early["name"], HELPER, "prepare"]


def test_helper_in_an_image_volume_serves_containers_at_any_position() -> None:
    look = seen(delivery="ImageVolume")
    once = settled(pod(QUICK), look)
    inits(once).insert(0, container("early", "/early"))
    twice = settled(once, look)
    assert names(inits(twice)) == ["early", "prepare"]
    assert [c["command"][: len(LINGER)] for c in inits(twice)] == [LINGER, LINGER]
    assert [c["volumeMounts"] for c in inits(twice)] == [[MOUNT], [MOUNT]]
    assert twice["spec"]["volumes"] == once["spec"]["volumes"]


def test_node_selector_of_a_class_counts_in_the_first_call() -> None:
    """The API server merges its nodeSelector into the pod. The second call must decide the same."""
    pool = runtime_class("volatile", selector={"pool": "volatile"})
    other = node("other", "containerd://2.1.5", labels={"pool": "other"})
    remedies: Json = {"runtimeClass": {"name": "volatile"}, "postInitSleep": {}}
    look = view(policy(remedies=remedies), classes=[pool], nodes=[other])
    before = pod(QUICK)
    decision = decided(before, look)
    assert why(decision) == ["Applied", "prepare: Applied"]
    merged = patched(before, decision)
    merged["spec"]["nodeSelector"] = {"pool": "volatile"}
    assert decided(merged, look).operations == ()


def test_helper_in_a_root_pod_runs_as_the_user_of_its_template() -> None:
    """PodSecurity restricted v1.22 to v1.24 accepts it on each container instead of on the pod."""
    secured = QUICK | {"securityContext": {"runAsNonRoot": True, "runAsUser": 1000}}
    found = settled(pod(secured, securityContext={"runAsUser": 0}), seen())
    context = found["spec"]["initContainers"][0]["securityContext"]
    assert (context["runAsNonRoot"], context["runAsUser"]) == (True, 1000)


def test_device_in_every_container_is_copied_to_the_helper() -> None:
    """A LimitRange may require it of each container."""
    gpu = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    found = settled(pod(QUICK | gpu, containers=[container("main", "/main", **gpu)]), seen())
    assert found["spec"]["initContainers"][0]["resources"] == gpu["resources"]


def test_pod_with_full_annotations_is_unchanged() -> None:
    before = pod(QUICK, annotations={"full": "x" * (256 * 1024 - 4)})
    decision = decided(before, seen())
    assert why(decision) == ["AnnotationsFull"]
    assert decision.operations == ()
