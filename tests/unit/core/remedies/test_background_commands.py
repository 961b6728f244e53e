"""Commands that a wrapper changes because they are no longer process 1."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.factories import (
    Json,
    container,
    decide_pod,
    mutate_pod,
    pod,
    policy,
    reasons,
    view,
)
from webhook.core.admission.decider import OperatorSettings
from webhook.core.command_line import traps_interrupt
from webhook.core.policy.snapshot import Snapshot
from webhook.core.remedies import shell_wrapper

XCOM = 'trap "exit 0" INT; while true; do sleep 1; done;'
"""What Airflow's KubernetesPodOperator runs in its XCom sidecar."""


LIMITS: Json = {"openFiles": {"soft": 4096}}


def seen(**settings: Any) -> Snapshot:
    every = {"postInitSleep": {"containers": ["*"], **settings}}
    return view(policy(remedies=every))


def regular(*command: str, **fields: Any) -> Json:
    return pod(containers=[container("a", *command, **fields)], restartPolicy="Never")


def wrapper_of(document: Json, **settings: Any) -> str:
    (found,) = mutate_pod(document, seen(**settings))["spec"]["containers"]
    command = found.get("command") or [""]
    if shell_wrapper.is_wrapped(command):
        return "shell"
    return "helper" if command[0] == "/podsettle/linger" else ""


TRAPS = [
    XCOM,
    "trap 'exit 0' SIGINT",
    "trap 'exit 0' TERM INT; sleep 9",
    "trap 'exit 0' QUIT",
    "trap cleanup 1 2 15",
    "trap cleanup 3",
    "set -e\ntrap 'rm -f x; exit 1' HUP INT TERM\nmake",
    'for s in HUP INT; do trap "kill -$s $pid" $s; done',
    "trap '\n  rm x\n' INT",
    "trap '\n  rm x\n' 2 15",
    "trap '\n  echo \"x\"\n' int",
    "trap cleanup \\\n  2 15",
    "trap cleanup '2'",
    "trap cleanup 1 02",
    "trap\\\n cleanup 2",
    "'trap' 'exit 0' INT",
    '"trap" cleanup 2',
    "for s in 2 15; do trap cleanup $s; done",
    "for s in 2 15; do\n  trap 'rm $x' \"$s\"\ndone",
    "signals='2 15'; trap 'rm $x; exit' $signals",
    "on() { trap cleanup ${@}; }; on int",
    'trap cleanup 1 "3" 15',
    "trap 'exit 0' int",
    "trap - SigQuit",
    "x && (trap 'y' INT)",
    "sh -c 'trap \"exit 0\" INT'",
]
NO_TRAPS = [
    "true",
    "trap 'rm -f x' EXIT; make",
    "trap cleanup TERM",
    "trap cleanup 0 15",
    "kill -INT 7",
    "echo bootstrap INT",
    "trapped=INT",
    "make 2>&1; exit 2",
    "trap 'exit 2' TERM",
    "for s in 1 15; do trap 'exit 2' $s; done",
    "trap 'rm $x; exit' EXIT; sleep $delay\nsleep 2",
    "trap '\n  exit 2\n' TERM",
    "trap '\n  x\n' TERM\nkill -s int 7",
]


@pytest.mark.parametrize("script", TRAPS)
def test_helper_wraps_a_shell_that_traps_an_interrupt_except_bash(script: str) -> None:
    assert wrapper_of(regular("/bin/bash", "-c", script)) == "shell"
    for shell in ("sh", "/bin/sh", "ash", "dash", "/busybox/sh"):
        for document in (regular(shell, "-c", script), regular(shell, args=["-c", script])):
            assert wrapper_of(document) == "helper", shell
            decision = decide_pod(document, seen(delivery="Shell"))
            assert reasons(decision) == ["a: TrapsInterrupt"]
            assert len(decision.warnings) == 1
            without_helper = decide_pod(document, seen(), settings=OperatorSettings())
            assert reasons(without_helper) == ["a: HelperImageMissing"]


@pytest.mark.parametrize("script", NO_TRAPS)
def test_shell_without_such_a_trap_wraps_itself(script: str) -> None:
    assert wrapper_of(regular("sh", "-c", script)) == "shell"
    assert wrapper_of(regular("sh", args=["-c", script])) == "shell"


def test_limits_alone_do_not_change_the_signals_of_a_shell() -> None:
    limits = view(policy(remedies=LIMITS))
    (found,) = mutate_pod(regular("sh", "-c", XCOM), limits)["spec"]["containers"]
    assert shell_wrapper.has_no_delay(found["command"])


def test_trap_in_a_megabyte_is_found_in_linear_time() -> None:
    for text in ("trap 'x' TERM; ", "trap x $s\n", "trap '\"$x\n"):
        script = text * (900_000 // len(text))
        document = regular("sh", "-c", script, args=[script])
        assert wrapper_of(document) == "shell"


WORDS = st.sampled_from(
    [
        *("trap", " ", "  ", "\n", ";", "'", '"', "INT", "int", "SIGQUIT", "2", "3", "15", "EXIT"),
        *("exit 2", "$s", ")", "&&", "\t", "x", "_", "\r\n"),
    ]
)


# A pattern of one line, whose time is quadratic in the number of traps.
TRAPPED = (
    r"\btrap(?=[ \t\"'])(([^\n]*[ \t\"'])?((?i:(SIG)?(INT|QUIT)\b)|0*[23]([\s;&|)}]|$))"
    r"|[^\n]*('0*[23]'|\"0*[23]\"))"
)


@examples(300)
@given(st.lists(WORDS, max_size=12).map("".join))
def test_traps_are_those_that_one_pattern_finds(script: str) -> None:
    has_trap, has_name, is_trapped = (
        re.search(pattern, script, re.ASCII)
        for pattern in (r"\btrap[ \t\"']", r"\b(SIG)?(INT|QUIT)\b", TRAPPED)
    )
    expected = bool((has_trap and has_name) or is_trapped)
    spans_lines = any(line.count(quote) % 2 for line in script.split("\n") for quote in "'\"")
    may_have_more = spans_lines or "$s" in script
    assert traps_interrupt([script]) in ({expected, True} if may_have_more else {expected})


def test_process_for_which_another_container_may_wait_is_left() -> None:
    """The pod is that of a trial of Katib, whose collector reads `PID.pid` of the first process."""
    trial = "python train.py 1>/var/log/katib/metrics.log 2>&1 && echo completed > /v/$$$$.pid"
    containers = [container("training", "sh", "-c", args=[trial]), container("metrics", "/collect")]
    alone = pod(container("prepare", "/a"), containers=containers, restartPolicy="Never")
    shared = {**alone, "spec": alone["spec"] | {"shareProcessNamespace": True}}
    assert reasons(decide_pod(shared, seen())) == [
        *("prepare: Applied", "training: ProcessOne", "metrics: ProcessOne")
    ]
    # `kubectl debug --copy-to` sets the field in the copy of a settled pod.
    copy = mutate_pod(alone, seen())
    copy["spec"]["shareProcessNamespace"] = True
    assert reasons(decide_pod(copy, seen())) == [
        f"{name}: AlreadySettled" for name in ("prepare", "training", "metrics")
    ]


SYSTEMD = ["/sbin/init", "/usr/sbin/init", "/usr/lib/systemd/systemd", "/bin/systemd", "systemd"]


@pytest.mark.parametrize("command", ["/init", "/sbin/runit", "/bin/k3s", "rke2", *SYSTEMD])
def test_program_that_has_to_be_process_one_is_left(command: str) -> None:
    document = regular(command, args=["/app"])
    for delivery in ("Auto", "Shell"):
        decision = decide_pod(document, seen(delivery=delivery))
        assert reasons(decision) == ["a: ProcessOne"]
        assert decision.warnings == []
    limits = view(policy(remedies=LIMITS))
    # CRI-O takes a container for systemd only if its command begins with it.
    expected = "ProcessOne" if command in SYSTEMD else "Applied"
    assert reasons(decide_pod(document, limits)) == [f"a: {expected}"]


@pytest.mark.parametrize(
    "started",
    [
        {"command": ["/vault/vault-env"], "args": ["/init", "/app"]},
        {"command": ["/vault/vault-env", "/init"]},
        {"command": ["sh", "-c", "exec /init"]},
        {"command": ["/usr/local/bin/entrypoint", "/sbin/init"]},
        {"command": ["/usr/local/bin/entrypoint"], "args": ["/lib/systemd/systemd"]},
        {"command": ["sh", "-c", "exec /usr/lib/systemd/systemd --system"]},
        {"command": ["bash", "-c", "mount -a; exec /usr/sbin/init"]},
        {"command": ["/bin/bash", "-c"], "args": ["set -e; chown a /b && exec '/init' /app"]},
        {"command": ["sh", "-ec"], "args": ["cd /app\n\texec -c /init\n"]},
        {"command": ["sh", "-c", "/init"]},
        {"command": ["sh", "-c", 'exec "$@"', "sh", "/init"]},
        {"args": ["/init"]},
    ],
)
def test_init_that_takes_the_place_of_another_program_is_left(started: Json) -> None:
    """bank-vaults' vault-env executes the program in its arguments, and s6-overlay is one."""
    made = {"name": "a", "image": "registry.example/app:1", **started}
    for document in (pod(containers=[made], restartPolicy="Never"), pod(made)):
        assert "a: ProcessOne" in reasons(decide_pod(document, seen()))


@pytest.mark.parametrize("in_front", [[], ["/vault/vault-env"]])
def test_program_that_has_to_be_process_one_is_left_behind_limits_too(in_front: list[str]) -> None:
    """An earlier call has wrapped it for openFiles, and another webhook may have moved that."""
    both = view(policy(remedies={"postInitSleep": {"containers": ["*"]}, **LIMITS}))
    settled = mutate_pod(regular("/init"), both)
    (wrapped,) = settled["spec"]["containers"]
    assert wrapped["command"] == ["/podsettle/linger", "--open-files", "4096", "--", "/init"]
    wrapped["command"] = [*in_front, *wrapped["command"]]
    again = decide_pod(settled, both)
    assert reasons(again) == ["a: ProcessOne", "a: AlreadySettled"]


def test_program_or_script_that_only_names_an_init_is_wrapped() -> None:
    for command in ("/usr/local/sbin/init-db", "/init.sh", "/k3s/x", "/opt/systemd-x"):
        assert wrapper_of(regular(command)) == "helper", command
    for script in (
        *("cat /init", "exec /init/run", "exec /bin/init", "execute /init.d", "exec x; a /init"),
    ):
        assert wrapper_of(regular("sh", "-c", script)) == "shell", script
    for tool, *args in (("cp", "-R", "/x", "/init"), ("/bin/chmod", "755", "/init")):
        assert wrapper_of(regular(tool, args=args)) == wrapper_of(regular(tool, *args)) == "helper"
