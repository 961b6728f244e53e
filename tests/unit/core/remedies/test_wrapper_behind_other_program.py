"""Wrapped containers in front of whose command another webhook has put a program of its own."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from tests.support.complexity import cpu_ratio
from tests.support.examples import examples
from tests.support.factories import (
    LINGER,
    Json,
    container,
    decide_pod,
    in_shell,
    mutate_pod,
    pod,
    policy,
    reasons,
    view,
)
from tests.support.post_init_sleep import HELPER
from webhook.core.decision_input import facts_of
from webhook.core.pod import Container, decode_pod
from webhook.core.policy.snapshot import Snapshot
from webhook.core.remedies import REMEDIES as REMEDIES_BY_NAME
from webhook.core.remedies.command_wrapper import unwrap_container

PROGRAM = container("a", "/a", args=["--port", "80"])
SCRIPT = container("a", "sh", "-c", "exec /a", args=["x"])
SLEEP: Json = {"postInitSleep": {"initContainers": ["*"], "containers": ["*"]}}
LIMITS: Json = {"openFiles": {"soft": 4096, "initContainers": ["*"]}}
LIMITED = ["/podsettle/linger", "--open-files", "4096", "--"]
REMEDIES = [SLEEP, LIMITS, SLEEP | LIMITS]
EVERY = ["initContainers", "containers"]


def seen(remedies: Json, **settings: Any) -> Snapshot:
    return view(policy(remedies={name: each | settings for name, each in remedies.items()}))


def strings_of(found: Json) -> list[str]:
    return [*(found.get("command") or []), *(found.get("args") or [])]


def all_in_args(found: Json) -> Json:
    """Change a container as vault-secrets-webhook of bank-vaults does."""
    return found | {"command": ["/vault/vault-env"], "args": strings_of(found)}


def in_front(found: Json) -> Json:
    return found | {"command": ["/tini", "--", *found["command"]]}


def split_anywhere(found: Json) -> Json:
    first, *rest = strings_of(found)
    return found | {"command": [first], "args": rest}


def by_the_entrypoint(found: Json) -> Json:
    bare = {key: value for key, value in found.items() if key != "command"}
    return bare | {"args": strings_of(found)}


def by_a_long_script(found: Json) -> Json:
    """Begin with a script of tens of kilobytes, such as a list of exports."""
    script = "\n".join([*(f"export NAME_{i}=value" for i in range(2_000)), 'exec "$@"'])
    return found | {"command": ["sh", "-c", script, "-"], "args": strings_of(found)}


def in_a_shell_command(found: Json) -> Json:
    return found | {"command": ["sh", "-c", f"exec {shlex.join(strings_of(found))}"], "args": []}


def behind_a_long_script(found: Json) -> Json:
    exports = [f"export NAME_{i}=/opt/lingering/value" for i in range(2_000)]
    text = "\n".join([*exports, f"exec {shlex.join(strings_of(found))}"])
    return found | {"command": ["/opt/lingering/run", "sh", "-c", text], "args": []}


def as_katib_does(found: Json) -> Json:
    """Change a container as the webhook of Katib does (`wrapWorkerContainer`), without quotes."""
    end = "1>/var/log/katib/metrics.log 2>&1 && echo completed > /var/log/katib/$$$$.pid"
    strings = strings_of(found)
    if strings[:2] == ["sh", "-c"]:
        del strings[:2]
    return found | {"command": ["sh", "-c"], "args": [" ".join([*strings, end])]}


def in_one_option(found: Json) -> Json:
    """`doppler run --command` takes a shell's text."""
    text = shlex.join(strings_of(found))
    return found | {"command": ["doppler", "run", f"--command={text}"], "args": []}


def as_json(found: Json) -> Json:
    return found | {"command": ["/run-json"], "args": [json.dumps(strings_of(found))]}


def as_json_in_json(found: Json) -> Json:
    text = json.dumps({"entrypoint": json.dumps(strings_of(found), indent=1)})
    return found | {"command": ["/run-json", text], "args": []}


def katib_behind_vault(found: Json) -> Json:
    return all_in_args(as_katib_does(found))


JOINED = [
    *(in_a_shell_command, behind_a_long_script, as_katib_does, in_one_option, as_json),
    *(as_json_in_json, katib_behind_vault),
]
CHANGES: list[Callable[[Json], Json]] = [
    *(all_in_args, in_front, split_anywhere, by_the_entrypoint, by_a_long_script),
    *JOINED,
    lambda found: by_a_long_script(all_in_args(found)),
]


def changed_by_other(document: Json, change: Callable[[Json], Json], *, own: bool = True) -> Json:
    """Return a pod whose containers another webhook has changed, and its own init container."""
    spec = dict(document["spec"])
    for key in EVERY:
        spec[key] = [
            change(each) if own or each["name"] != HELPER else each for each in spec.get(key) or []
        ]
    copying = container("copy-vault-env", "sh", "-c", "cp /vault-env /vault/")
    spec["initContainers"] = [copying, *spec["initContainers"]]
    spec["volumes"] = [*(spec.get("volumes") or []), {"name": "vault-env", "emptyDir": {}}]
    return {**document, "spec": spec}


def before(found: Json) -> Json:
    return pod(found | {"name": "prepare"}, containers=[found], restartPolicy="Never")


@pytest.mark.parametrize("delivery", ["Auto", "Binary", "ImageVolume"])
@pytest.mark.parametrize("remedies", REMEDIES, ids="-".join)
@pytest.mark.parametrize("found", [PROGRAM, SCRIPT], ids=["program", "script"])
@pytest.mark.parametrize("change", CHANGES)
def test_wrapper_is_recognised_wherever_it_stands(
    change: Callable[[Json], Json], found: Json, remedies: Json, delivery: str
) -> None:
    known = seen(remedies, delivery=delivery)
    # Without a command, podsettle's own container would be another one.
    own = change is not by_the_entrypoint
    between = changed_by_other(mutate_pod(before(found), known), change, own=own)
    decision = decide_pod(between, known)
    others = [each for each in reasons(decision) if not each.startswith("copy-vault-env")]
    assert {*others} == {"prepare: AlreadySettled", "a: AlreadySettled"}
    after = mutate_pod(between, known)
    assert after["spec"]["containers"] == between["spec"]["containers"]


@pytest.mark.parametrize("change", [each for each in CHANGES if each is not by_the_entrypoint])
@pytest.mark.parametrize("names", [["kubeletGate"], ["startGate"], ["kubeletGate", "startGate"]])
def test_gate_is_recognised_wherever_its_command_stands(
    change: Callable[[Json], Json], names: list[str]
) -> None:
    targets = [{"dns": "a"}, {"tcp": "[fd00::1]:53"}]
    gates: Json = {"kubeletGate": {}, "startGate": {"waitFor": targets}}
    known = seen({name: gates[name] for name in names})
    settled = mutate_pod(before(PROGRAM), known)
    between = changed_by_other(settled, change)
    decision = decide_pod(between, known)
    assert {*reasons(decision)} == {"AlreadySettled"}
    expected = decide_pod(settled, known).outcomes
    assert [each.message for each in decision.outcomes] == [each.message for each in expected]
    assert decision.operations == ()
    gate = next(each for each in between["spec"]["initContainers"] if "gate" in each["name"])
    decoded = msgspec.json.decode(msgspec.json.encode(gate), type=Container)
    assert all(REMEDIES_BY_NAME[name].container_sign(decoded) for name in names)


def test_helper_is_delivered_before_the_program_of_the_other_webhook() -> None:
    """It stays where it is, because that program comes from the container in front of it."""
    known = seen(SLEEP, delivery="Binary")
    between = changed_by_other(mutate_pod(before(PROGRAM), known), all_in_args)
    decision = decide_pod(between, known)
    (late,) = (each for each in decision.outcomes if each.container == "copy-vault-env")
    assert late.reason == "NotApplicable"
    assert "before podsettle-linger" in late.message
    assert decision.operations == ()


def test_other_remedy_wraps_the_program_of_the_other_webhook() -> None:
    """The container mounts the helper already, so only its command changes."""
    between = changed_by_other(mutate_pod(before(PROGRAM), seen(SLEEP)), all_in_args)
    both = seen(SLEEP | LIMITS)
    after = mutate_pod(between, both)
    (main,) = after["spec"]["containers"]
    assert main["command"] == [*LIMITED, "/vault/vault-env"]
    assert main["volumeMounts"] == between["spec"]["containers"][0]["volumeMounts"]


@pytest.mark.parametrize(
    "args",
    [
        ["/podsettle/linger"],
        ["cp", "/podsettle/linger", "/x"],
        ["-c", "cp /podsettle/linger /x; /x --sleep 1s -- x"],
        ["-c", "/opt/podsettle/linger --sleep 1s -- x"],
        ["-c", "echo '/podsettle/linger is there' --"],
        ["-c", "echo ': podsettle; x' podsettle"],
        ["-c", "# like /podsettle/linger --sleep 1s -- /a\nexec /b"],
        ["-c", "pgrep -f '/podsettle/linger --sleep'"],
        ['{"command":["/podsettle/linger","--sleep","1s","--","/a"]}'],
        ["podsettle", "--sleep"],
        [": podsettle; x", "podsettle"],
        ["zsh", "-c", ": podsettle; x", "podsettle", "0", "0", "zsh"],
    ],
)
def test_text_that_only_names_the_wrapper_is_none(args: list[str]) -> None:
    document = before(container("a", "/x", args=args))
    assert reasons(decide_pod(document, seen(SLEEP))) == ["prepare: Applied", "a: Applied"]


def test_other_remedy_wraps_a_text_with_the_wrapper_once() -> None:
    between = changed_by_other(mutate_pod(before(PROGRAM), seen(SLEEP)), as_katib_does)
    both = seen(SLEEP | LIMITS, delivery="Binary")
    after = mutate_pod(between, both)
    (main,) = after["spec"]["containers"]
    assert main["command"] == [*LIMITED, "sh", "-c"]


def test_text_with_a_script_of_limits_alone_does_not_keep_its_container_alive() -> None:
    limits = seen(LIMITS)
    for change in JOINED:
        between = changed_by_other(mutate_pod(before(SCRIPT), limits), change)
        found = reasons(decide_pod(between, seen(SLEEP, delivery="Binary")))
        assert {"prepare: Applied", "a: Applied"} <= {*found}, change


def test_wrapper_behind_many_strings_is_read_in_bounded_time() -> None:
    (wrapped,) = mutate_pod(before(PROGRAM), seen(SLEEP))["spec"]["containers"]
    args = [*(["x", "/podsettle/linger", "podsettle"] * 8_000), *strings_of(wrapped)]
    document = before(container("a", "/x", args=args, volumeMounts=wrapped["volumeMounts"]))
    assert reasons(decide_pod(document, seen(SLEEP)))[0] == "prepare: AlreadySettled"


WRAPPERS = st.sampled_from(
    [
        LIMITED,
        LINGER,
        in_shell(["sh"], sleep_ms=10, min_lifetime_ms=500)[:-1],
    ]
)
PROGRAMS = st.lists(st.sampled_from(["/vault/vault-env", "--", "-c", "sh", "a b"]), max_size=4)


@examples(200)
@given(st.lists(st.tuples(PROGRAMS, WRAPPERS), max_size=4), PROGRAMS)
def test_command_without_its_wrappers_is_the_command_before(
    parts: list[tuple[list[str], list[str]]], end: list[str]
) -> None:
    wrapped = [*(string for program, wrapper in parts for string in (*program, *wrapper)), *end]
    plain = [*(string for program, _ in parts for string in program), *end]
    found = {"command": ["/x"], "args": wrapped}
    unwrap_container(found)
    assert found == {"command": ["/x"], "args": plain}


@pytest.mark.parametrize("remedies", REMEDIES, ids="-".join)
@pytest.mark.parametrize("found", [PROGRAM, SCRIPT], ids=["program", "script"])
@pytest.mark.parametrize("change", CHANGES)
def test_container_without_its_wrappers_has_the_facts_of_the_container_before(
    change: Callable[[Json], Json], found: Json, remedies: Json
) -> None:
    *_, wrapped = mutate_pod(before(found), seen(remedies))["spec"]["initContainers"]
    moved = change(wrapped)
    unwrap_container(moved)
    expected = change(found | {"name": "prepare"})
    facts, of_expected = (
        facts_of(decode_pod(json.dumps(pod(each)).encode())) for each in (moved, expected)
    )
    assert facts == of_expected
    if change in JOINED and found is PROGRAM and change is not as_json_in_json:
        assert strings_of(moved) == strings_of(expected)


HELPER_COMMAND = ["/podsettle/linger", "--sleep", "1s", "--"]
MANIFEST = f"command: {json.dumps([*HELPER_COMMAND, '/b'])} # a\\nb"


@pytest.mark.parametrize(
    ("args", "plain"),
    [
        # Its own wrapper is a string of the command, so the text is about another container.
        ([*HELPER_COMMAND, "kubectl", MANIFEST], ["kubectl", MANIFEST]),
        (["sh", "-c", "printf 'a\\nb'; /podsettle/linger --help"], None),
        ([json.dumps([*HELPER_COMMAND, "sh", "-c", "a\nb"])], [json.dumps(["sh", "-c", "a\nb"])]),
    ],
    ids=["manifest", "no wrapper", "JSON with a line break"],
)
def test_texts_without_a_wrapper_stay_as_they_were_written(
    args: list[str], plain: list[str] | None
) -> None:
    found = {"command": ["/x"], "args": args, "volumeMounts": [{"mountPath": "/podsettle"}]}
    unwrap_container(found)
    assert found == {"command": ["/x"], "args": plain or args}


NEARLY = ["/podsettle/linger''''''''", ": podsettle;"]


@pytest.mark.parametrize("nearly", NEARLY)
def test_text_that_nearly_is_a_wrapper_at_each_place_is_read_quickly(nearly: str) -> None:
    script = ": podsettle; podsettle 0 0 /a "

    def undo(unit: str) -> None:
        text = f"{script}{unit * (60_000 // len(unit))} /podsettle/linger --a x"
        mounts = [{"mountPath": "/podsettle"}]
        unwrap_container({"command": ["/x"], "args": [text], "volumeMounts": mounts})

    assert cpu_ratio(undo, nearly, "b") < 5


@pytest.mark.parametrize("change", CHANGES)
def test_container_shows_the_sign_of_its_wrapper(change: Callable[[Json], Json]) -> None:
    (wrapped,) = mutate_pod(before(PROGRAM), seen(SLEEP | LIMITS))["spec"]["containers"]
    moved = msgspec.json.decode(msgspec.json.encode(change(wrapped)), type=Container)
    plain = msgspec.json.decode(msgspec.json.encode(change(PROGRAM)), type=Container)
    for name in ("postInitSleep", "openFiles"):
        assert REMEDIES_BY_NAME[name].container_sign(moved)
        assert not REMEDIES_BY_NAME[name].container_sign(plain)
        assert not REMEDIES_BY_NAME[name].container_sign(Container("a", args=Raw(b'"podsettle"')))
