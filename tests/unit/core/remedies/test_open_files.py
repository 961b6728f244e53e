"""Tests of openFiles on pods as the API server sends them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.factories import (
    IMAGE,
    LINGER,
    Json,
    container,
    decide_pod,
    mutate_pod,
    node,
    pod,
    policy,
    reasons,
    view,
)
from tests.support.patches import only_reason
from tests.support.post_init_sleep import HELPER, HELPER_VOLUME, MOUNT, container_names
from webhook import __version__
from webhook.core.admission.decider import OperatorSettings
from webhook.core.admission.summary import summary_of
from webhook.core.defects.versions import Version
from webhook.core.policy.snapshot import Snapshot
from webhook.core.policy.still_needed import all_nodes, still_needed
from webhook.core.remedies.command_wrapper import unwrap_container

SERVER = container("server", "/server", "--port", "80")
SCRIPT = container("script", "sh", "-c", "exec /server")
LIMITED = ["/podsettle/linger", "--open-files", "65536:524288", "--"]
LIMITS = (
    ": podsettle; { ulimit -Sn 65536||ulimit -Sn `ulimit -Hn`;"
    "[ `ulimit -Hn` -gt 524288 ]&&ulimit -Hn 524288;:;} 2>/dev/null"
)
IN_SHELL = ["sh", "-c", f'{LIMITS}\nshift 2;exec "$@"', "podsettle", "0", "0"]
BOTH: Json = {"postInitSleep": {"containers": ["*"]}}


def seen(*nodes: Json, also: Json | None = None, **settings: Any) -> Snapshot:
    limits = {"soft": 65536, "hard": 524288, **settings}
    return view(policy(remedies={"openFiles": limits, **(also or {})}), nodes=nodes)


def regular(*containers: Json, **fields: Any) -> Json:
    return pod(containers=containers, **fields)


def commands(document: Json, where: str = "containers") -> list[list[str]]:
    return [each["command"] for each in document["spec"][where]]


def test_container_starts_the_helper_which_becomes_the_command() -> None:
    after = mutate_pod(regular(SERVER), seen(delivery="Binary"))
    (server,) = after["spec"]["containers"]
    assert server["command"] == [*LIMITED, "/server", "--port", "80"]
    assert server["volumeMounts"] == [MOUNT]
    assert after["spec"]["volumes"] == [HELPER_VOLUME]
    assert container_names(after["spec"]["initContainers"]) == [HELPER]


def test_command_of_a_shell_is_wrapped_by_a_script_without_any_other_change() -> None:
    after = mutate_pod(regular(SCRIPT), seen())
    assert commands(after) == [[*IN_SHELL, "sh", "-c", "exec /server"]]
    assert after["spec"].keys() == regular(SCRIPT)["spec"].keys()


@pytest.mark.parametrize(
    "fields", [{"livenessProbe": {"exec": {"command": ["true"]}}}, {"restartPolicy": "Always"}]
)
def test_long_running_containers_are_wrapped_and_init_containers_only_if_named(
    fields: Json,
) -> None:
    document = pod(
        container("prepare", "/prepare"),
        container("proxy", "/proxy", restartPolicy="Always"),
        containers=[SERVER | fields],
        restartPolicy="Always",
    )
    assert reasons(decide_pod(document, seen())) == ["server: Applied"]
    both = decide_pod(document, seen(initContainers=["pr*"]))
    assert reasons(both) == ["prepare: Applied", "proxy: NativeSidecar", "server: Applied"]


def test_helper_is_used_only_if_it_is_known_to_have_the_option() -> None:
    cases: list[tuple[str, Version | None, str]] = [
        ("r.example/linger:0.1.0", None, "HelperTooOld"),
        (f"r.example/linger@sha256:{'0' * 64}", None, "HelperTooOld"),
        ("r.example/linger:latest", Version(0, 2), "Applied"),
        ("r.example/linger:0.2.0", Version(0, 1), "HelperTooOld"),
    ]
    for image, stated, reason in cases:
        settings = OperatorSettings(linger_image=image, linger_version=stated)
        decision = decide_pod(regular(SERVER, SCRIPT), seen(), settings=settings)
        assert (image, reasons(decision)) == (image, [f"server: {reason}", "script: Applied"])
        if reason == "HelperTooOld":
            assert "`--open-files` needs a helper of version 0.2.0" in decision.outcomes[0].message
            assert any("linger" in warning for warning in decision.warnings)


@pytest.mark.parametrize("program", [SERVER, SCRIPT | {"stdin": True}])
def test_both_remedies_make_one_wrapper(program: Json) -> None:
    both = seen(also=BOTH)
    after = mutate_pod(regular(program, restartPolicy="Never"), both)
    wrapper = [*LINGER[:-1], "--open-files", "65536:524288", "--"]
    assert commands(after) == [[*wrapper, *program["command"]]]
    assert len(after["spec"]["volumes"]) == 1
    assert reasons(decide_pod(after, both)) == [f"{program['name']}: AlreadySettled"] * 2


def test_both_remedies_make_one_script() -> None:
    both = seen(also=BOTH)
    after = mutate_pod(regular(SCRIPT, restartPolicy="Never"), both)
    (command,) = commands(after)
    assert command[2].startswith(f"{LIMITS} # {__version__} runs the command, ")
    assert command[3:] == ["podsettle", "0.49", "0.01", "sh", "-c", "exec /server"]


@pytest.mark.parametrize("first", ["postInitSleep", "openFiles"])
@pytest.mark.parametrize("program", [SERVER, SCRIPT], ids=["helper", "shell"])
def test_pod_that_an_earlier_call_wrapped_for_one_remedy_gets_the_other_once(
    first: str, program: Json
) -> None:
    """As during an upgrade, in which a replica of the version before knows one of the remedies."""
    remedies: Json = {"openFiles": {"soft": 65536, "hard": 524288}, **BOTH}
    before = view(policy(remedies={first: remedies[first]}))
    both = view(policy(remedies=remedies))
    once = mutate_pod(regular(program, restartPolicy="Never"), before)
    twice = mutate_pod(once, both)
    assert commands(twice) != commands(once)
    assert len(twice["spec"].get("volumes", [])) == len(once["spec"].get("volumes", []))
    assert decide_pod(twice, before).operations == ()
    (main,) = twice["spec"]["containers"]
    unwrap_container(main)
    assert main["command"] == program["command"]


@pytest.mark.parametrize("delivery", ["Binary", "ImageVolume"])
@pytest.mark.parametrize(
    ("delivered", "reason"),
    [
        ("registry.example/linger:0.1.0", "HelperTooOld"),
        ("registry.example/linger:0.2.0", "Applied"),
        ("registry.example/linger", "HelperTooOld"),
        (IMAGE, "Applied"),
    ],
)
def test_helper_that_an_earlier_call_delivered_decides(
    delivery: str, delivered: str, reason: str
) -> None:
    """A replica of the version before may have delivered its own helper."""
    sleep: Json = {"postInitSleep": {"containers": ["*"], "delivery": delivery}}
    earlier = OperatorSettings(linger_image=delivered)
    once = mutate_pod(
        regular(SERVER, restartPolicy="Never"), view(policy(remedies=sleep)), settings=earlier
    )
    decision = decide_pod(once, seen())
    assert reasons(decision) == [f"server: {reason}"]


def test_summary_quotes_no_limits_that_a_wrapped_container_does_not_have() -> None:
    for program in (SERVER, SCRIPT):
        document = mutate_pod(regular(program), seen(soft=1000))
        other = decide_pod(document, seen())
        assert summary_of(other.outcomes) == (
            f"{program['name']} is already given the limits of its wrapper."
        )
        same = decide_pod(document, seen(soft=1000))
        assert "a soft limit of 1,000 open files, 524,288 hard" in summary_of(same.outcomes)


LABELLED = node("old", labels={"limits": "infinity"})
PLAIN = node("new", labels={"limits": "set"})


def test_remedy_steps_aside_if_the_pod_can_land_on_no_node_with_the_label() -> None:
    cases: list[tuple[tuple[Json, ...], Json, str]] = [
        ((), {}, "Applied"),
        ((LABELLED, PLAIN), {}, "Applied"),
        ((PLAIN,), {}, "NotNeeded"),
        ((LABELLED, PLAIN), {"nodeSelector": {"limits": "set"}}, "NotNeeded"),
        ((PLAIN,), {"nodeSelector": {"limits": "of a node to come"}}, "Applied"),
    ]
    for nodes, fields, reason in cases:
        found = only_reason(regular(SERVER, **fields), seen(*nodes, nodeLabel="limits=infinity"))
        assert (nodes, fields, found) == (nodes, fields, f"server: {reason}")


def test_policy_is_needed_as_long_as_a_node_has_the_label() -> None:
    cases: list[tuple[Json, tuple[Json, ...], str, str]] = [
        ({}, (PLAIN,), "True", "No release that podsettle knows makes openFiles unnecessary."),
        ({"nodeLabel": "limits=infinity"}, (), "Unknown", "No node is known."),
        (
            {"nodeLabel": "limits=infinity"},
            (PLAIN, LABELLED),
            "True",
            "1 of 2 nodes still has the label limits=infinity.",
        ),
        (
            {"nodeLabel": "limits=infinity"},
            (PLAIN,),
            "False",
            "None of 1 nodes has the label limits=infinity. The policy can be removed.",
        ),
    ]
    for settings, nodes, status, message in cases:
        chosen = policy(remedies={"openFiles": {"soft": 65536, **settings}})
        condition = still_needed(chosen, all_nodes(view(chosen, nodes=nodes)))
        assert (condition.status, condition.message) == (status, message)


def test_old_helper_still_keeps_a_container_alive() -> None:
    document = regular(SERVER, restartPolicy="Never")
    decision = decide_pod(
        document, seen(also=BOTH), settings=OperatorSettings(linger_image="r.example/linger:0.1.0")
    )
    assert reasons(decision) == ["server: Applied", "server: HelperTooOld"]
    (replaced,) = [each for each in decision.operations if each["path"].endswith("/command")]
    assert replaced["value"][: len(LINGER)] == LINGER
