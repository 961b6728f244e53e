"""Tests of postInitSleep on pods that other webhooks, or podsettle itself, have changed."""

from __future__ import annotations

import pytest

from tests.data.earlier_wrapper import EARLIER_SCRIPT
from tests.support.factories import (
    LINGER,
    Json,
    container,
    decide_pod,
    mutate_pod,
    node,
    patched,
    pod,
    policy,
    reasons,
    runtime_class,
    view,
)
from tests.support.patches import changes
from tests.support.post_init_sleep import (
    HELPER,
    MOUNT,
    QUICK,
    SHELL,
    container_names,
    init_containers,
    make_view,
)
from webhook.core.admission.summary import summary_of
from webhook.core.remedies import shell_wrapper


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
    decision = decide_pod(before, make_view())
    assert reasons(decision) == ["prepare: NameConflict"]
    assert changes(decision) == []
    assert len(decision.warnings) == 1


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


def test_mount_path_with_the_same_prefix_is_no_conflict() -> None:
    mounts = [{"name": "v", "mountPath": "/podsettle-data"}]
    assert reasons(decide_pod(pod(QUICK | {"volumeMounts": mounts}), make_view())) == [
        "prepare: Applied"
    ]


def test_shell_is_wrapped_even_if_the_helpers_names_are_taken() -> None:
    before = pod(SHELL, volumes=[{"name": HELPER, "configMap": {"name": "x"}}])
    assert reasons(decide_pod(before, make_view())) == ["script: Applied"]


@pytest.mark.parametrize("delivery", ["Auto", "Binary", "ImageVolume"])
def test_second_call_changes_nothing(delivery: str) -> None:
    look = make_view(delivery=delivery, containers=["*"])
    once = mutate_pod(pod(QUICK, SHELL, restartPolicy="Never"), look)
    again = decide_pod(once, look)
    assert reasons(again) == [f"{name}: AlreadySettled" for name in ("prepare", "script", "main")]
    assert again.operations == ()


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


OTHER_DURATIONS = {"minLifetime": "200ms"}, {"minLifetime": "0s", "sleep": "1s"}, {"sleep": "1s"}


@pytest.mark.parametrize("wrapped_with", OTHER_DURATIONS)
@pytest.mark.parametrize("quick", [QUICK, SHELL], ids=["helper", "shell"])
def test_summary_of_a_wrapped_container_quotes_no_duration_that_it_does_not_have(
    quick: Json, wrapped_with: Json
) -> None:
    name = quick["name"]
    document = mutate_pod(pod(quick), make_view(**wrapped_with))
    other = decide_pod(document, make_view())
    assert reasons(other) == [f"{name}: AlreadySettled"]
    assert summary_of(other.outcomes) == (
        f"{name} is already kept alive for as long as its wrapper says."
    )
    same = decide_pod(mutate_pod(pod(quick), make_view()), make_view())
    assert summary_of(same.outcomes) == f"{name} is already kept alive for at least 500 ms."


def test_summary_quotes_the_durations_of_a_wrapper_of_an_earlier_version() -> None:
    document = mutate_pod(pod(SHELL), make_view())
    document["spec"]["initContainers"][0]["command"][2] = EARLIER_SCRIPT
    assert summary_of(decide_pod(document, make_view()).outcomes) == (
        "script is already kept alive for at least 500 ms."
    )


def test_container_added_later_uses_the_existing_helper() -> None:
    once = mutate_pod(pod(QUICK), make_view())
    init_containers(once).append(container("late", "/late"))
    twice = mutate_pod(once, make_view())
    assert container_names(init_containers(twice)) == [HELPER, "prepare", "late"]
    assert init_containers(twice)[2]["command"] == [*LINGER, "/late"]
    assert len(twice["spec"]["volumes"]) == 1


def test_helper_moves_before_a_container_added_before_it() -> None:
    once = mutate_pod(pod(QUICK), make_view())
    init_containers(once).insert(0, container("early", "/early"))
    twice = mutate_pod(once, make_view())
    assert container_names(init_containers(twice)) == [HELPER, "early", "prepare"]
    assert init_containers(twice)[0] == init_containers(once)[1]
    assert init_containers(twice)[1]["command"] == [*LINGER, "/early"]
    assert decide_pod(twice, make_view()).operations == ()


def test_helper_moves_before_a_reordered_wrapped_container() -> None:
    once = mutate_pod(pod(QUICK), make_view())
    init_containers(once).reverse()
    decision = decide_pod(once, make_view())
    assert container_names(init_containers(patched(once, decision))) == [HELPER, "prepare"]
    assert [operation["op"] for operation in changes(decision)] == ["move"]


@pytest.mark.parametrize(
    "early",
    [container("istio-init"), container("proxy", "/x", restartPolicy="Always"), SHELL],
    ids=["mesh", "sidecar", "shell"],
)
def test_helper_stays_after_a_container_that_is_not_wrapped(early: Json) -> None:
    once = mutate_pod(pod(QUICK), make_view())
    init_containers(once).insert(0, early)
    twice = mutate_pod(once, make_view())
    assert container_names(init_containers(twice)) == [early["name"], HELPER, "prepare"]


def test_helper_in_an_image_volume_serves_containers_at_any_position() -> None:
    look = make_view(delivery="ImageVolume")
    once = mutate_pod(pod(QUICK), look)
    init_containers(once).insert(0, container("early", "/early"))
    twice = mutate_pod(once, look)
    assert container_names(init_containers(twice)) == ["early", "prepare"]
    assert [c["command"][: len(LINGER)] for c in init_containers(twice)] == [LINGER, LINGER]
    assert [c["volumeMounts"] for c in init_containers(twice)] == [[MOUNT], [MOUNT]]
    assert twice["spec"]["volumes"] == once["spec"]["volumes"]


def test_node_selector_of_a_class_counts_in_the_first_call() -> None:
    """The API server merges its nodeSelector into the pod. The second call must decide the same."""
    pool = runtime_class("volatile", selector={"pool": "volatile"})
    other = node("other", "containerd://2.1.5", labels={"pool": "other"})
    remedies: Json = {"runtimeClass": {"name": "volatile"}, "postInitSleep": {}}
    look = view(policy(remedies=remedies), classes=[pool], nodes=[other])
    before = pod(QUICK)
    decision = decide_pod(before, look)
    assert reasons(decision) == ["Applied", "prepare: Applied"]
    merged = patched(before, decision)
    merged["spec"]["nodeSelector"] = {"pool": "volatile"}
    assert decide_pod(merged, look).operations == ()


def test_helper_in_a_root_pod_runs_as_the_user_of_its_template() -> None:
    """PodSecurity restricted v1.22 to v1.24 accepts it on each container instead of on the pod."""
    secured = QUICK | {"securityContext": {"runAsNonRoot": True, "runAsUser": 1000}}
    found = mutate_pod(pod(secured, securityContext={"runAsUser": 0}), make_view())
    context = found["spec"]["initContainers"][0]["securityContext"]
    assert (context["runAsNonRoot"], context["runAsUser"]) == (True, 1000)


def test_device_in_every_container_is_copied_to_the_helper() -> None:
    """A LimitRange may require it of each container."""
    gpu = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    found = mutate_pod(
        pod(QUICK | gpu, containers=[container("main", "/main", **gpu)]), make_view()
    )
    assert found["spec"]["initContainers"][0]["resources"] == gpu["resources"]


def test_pod_with_full_annotations_is_unchanged() -> None:
    before = pod(QUICK, annotations={"full": "x" * (256 * 1024 - 4)})
    decision = decide_pod(before, make_view())
    assert reasons(decision) == ["AnnotationsFull"]
    assert decision.operations == ()
