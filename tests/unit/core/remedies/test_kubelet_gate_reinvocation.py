"""Tests of kubeletGate on pods that other webhooks, or podsettle itself, have changed."""

from __future__ import annotations

import pytest

from tests.support.factories import (
    LINGER,
    MODERN,
    Json,
    container,
    decide_pod,
    mutate_pod,
    node,
    patched,
    pod,
    reasons,
)
from tests.support.kubelet_gate import (
    GATE,
    HELPER,
    QUICK,
    SETTLED,
    init_container_names,
    init_containers,
    make_view,
    sidecar,
)
from tests.support.patches import changes


@pytest.mark.parametrize("node_", [MODERN, node()])
def test_second_call_changes_nothing(node_: Json) -> None:
    once = mutate_pod(pod(QUICK), make_view(node_))
    again = decide_pod(once, make_view(node_))
    assert reasons(again) == ["AlreadySettled"]
    assert again.operations == ()


@pytest.mark.parametrize("position", [0, 1, 2])
def test_gate_stays_in_place_when_containers_are_added(position: int) -> None:
    once = mutate_pod(pod(QUICK), make_view())
    init_containers(once).insert(position, container("late", "/late"))
    assert decide_pod(once, make_view()).operations == ()


@pytest.mark.parametrize("position", [0, 1])
def test_gate_moves_before_a_mesh_container_added_before_it(position: int) -> None:
    once = mutate_pod(pod(QUICK), make_view())
    init_containers(once).insert(position, container("istio-init"))
    decision = decide_pod(once, make_view())
    assert reasons(decision) == ["Applied"]
    assert [operation["op"] for operation in changes(decision)] == ["add", "add", "move"]
    after = patched(once, decision)
    assert (
        init_container_names(after).index(GATE)
        == init_container_names(after).index("istio-init") - 1
        == position
    )
    assert decide_pod(after, make_view()).operations == ()


def test_gate_moves_after_a_mesh_proxy_added_after_it() -> None:
    once = mutate_pod(pod(QUICK), make_view())
    init_containers(once).extend([container("istio-validation"), sidecar("istio-proxy")])
    after = mutate_pod(once, make_view())
    assert init_container_names(after) == ["prepare", "istio-validation", "istio-proxy", GATE]
    assert decide_pod(after, make_view()).operations == ()


@pytest.mark.parametrize(
    ("args", "effect"),
    [
        (["wait-kubelet", "--timeout", "30s"], "held until its node's kubelet has a serving "
         "certificate, for at most 30 s"),
        (["wait-kubelet", "--timeout", "15s"], "held by its gate until its node's kubelet has a "
         "serving certificate, for at most 15 s"),
        (["wait-kubelet", "--timeout", "x"], "held by its gate"),
        (["wait-kubelet"], "held by its gate"),
        ([], "held by its gate"),
    ],
)  # fmt: skip
def test_gate_of_a_copy_is_described_by_its_own_timeout(args: list[str], effect: str) -> None:
    once = mutate_pod(pod(QUICK), make_view())
    init_containers(once)[1]["args"] = args
    (outcome,) = decide_pod(once, make_view()).outcomes
    assert (outcome.reason, outcome.effect) == ("AlreadySettled", effect)


SLEEP: Json = {"postInitSleep": {"containers": ["*"]}}


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        ([], [HELPER, GATE]),
        ([QUICK], [HELPER, "prepare", GATE]),
        ([QUICK, container("istio-init")], [HELPER, "prepare", GATE, "istio-init"]),
        ([container("istio-init"), QUICK], [HELPER, GATE, "istio-init", "prepare"]),
    ],
)
def test_gate_is_never_wrapped(received: list[Json], expected: list[str]) -> None:
    look = make_view(node(), beside=SLEEP)
    once = mutate_pod(pod(*received, restartPolicy="Never"), look)
    assert init_container_names(once) == expected
    assert next(c for c in init_containers(once) if c["name"] == GATE)["command"] == SETTLED
    assert decide_pod(once, look).operations == ()


def test_helper_is_put_before_an_existing_gate() -> None:
    gated = mutate_pod(pod(QUICK), make_view(node()))
    look = make_view(node(), beside=SLEEP)
    after = mutate_pod(gated, look)
    assert init_container_names(after) == [HELPER, "prepare", GATE]
    assert init_containers(after)[2] == init_containers(gated)[1]
    assert init_containers(after)[1]["command"] == [*LINGER, "/entrypoint", "init"]


@pytest.mark.parametrize(
    "between",
    [
        ["early", HELPER, "prepare", GATE],
        [HELPER, "prepare", GATE, "late"],
        ["istio-init", HELPER, "prepare", GATE],
        ["early", "istio-init", HELPER, "prepare", GATE],
        ["early", HELPER, "istio-init", "prepare", GATE],
        [GATE, "early", HELPER, "prepare"],
        ["istio-init", "early", GATE, HELPER, "prepare"],
        ["early", "istio-init", GATE, HELPER, "prepare"],
        ["istio-validation", GATE, "istio-proxy", "early", HELPER, "prepare"],
    ],
)
def test_gate_and_helper_move_independently(between: list[str]) -> None:
    look = make_view(node(), beside=SLEEP)
    once = mutate_pod(pod(QUICK), look)
    known = {c["name"]: c for c in init_containers(once)}
    others: Json = {"istio-proxy": sidecar("istio-proxy")}
    before: Json = {**once, "spec": {**once["spec"]}}
    before["spec"]["initContainers"] = [
        known.get(name) or others.get(name) or container(name, f"/{name}") for name in between
    ]
    after = mutate_pod(before, look)
    order = init_container_names(after)
    theirs = [name for name in between if name not in (GATE, HELPER)]
    assert [name for name in order if name not in (GATE, HELPER)] == theirs
    wrapped = [
        c["name"] for c in init_containers(after) if (c.get("command") or [""])[0] == LINGER[0]
    ]
    assert wrapped
    assert all(order.index(HELPER) < order.index(name) for name in wrapped)
    if "istio-init" in order:
        assert order.index(GATE) < order.index("istio-init")
    if "istio-proxy" in order:
        assert order.index(GATE) > order.index("istio-proxy")
    for name in (GATE, HELPER):
        assert next(c for c in init_containers(after) if c["name"] == name) == known[name]
    assert decide_pod(after, look).operations == ()
