"""postInitSleep for every container of every fixture pod, with each delivery."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.expected_outcomes import HELPER, OUTCOMES, SHELL, WRAPPED
from tests.support.factories import (
    LINGER,
    Json,
    decide_pod,
    in_shell,
    mutate_pod,
    node,
    patched,
    policy,
    view,
)
from tests.support.reviews import PODS, load_pod
from webhook.core.defects.versions import Version

BROUGHT = "podsettle-linger"
SELECTORS = [load_pod(path)["spec"].get("nodeSelector", {}) for path in PODS]
LABELS = {key: value for each in SELECTORS for key, value in each.items()}
NODE = node("worker", "containerd://2.1.5", "v1.36.0", LABELS | {"kubernetes.io/os": "linux"})
"""A node that every pod could land on, and that mounts image volumes."""


def containers(of: Json) -> dict[str, Json]:
    spec = of["spec"]
    return {each["name"]: each for each in (*spec.get("initContainers", ()), *spec["containers"])}


def expected_command(how: str | None, command: list[str], delivery: str) -> list[str]:
    if how == SHELL and delivery == "Auto":
        return in_shell(command, sleep_ms=10, min_lifetime_ms=500)
    return [*LINGER, *command] if how in WRAPPED else command


def test_expected_outcomes_cover_every_pod_and_container() -> None:
    assert OUTCOMES.keys() == {path.stem for path in PODS}
    for path in PODS:
        if "" not in OUTCOMES[path.stem]:
            assert OUTCOMES[path.stem].keys() == containers(load_pod(path)).keys()


@pytest.mark.parametrize("delivery", ["Auto", "Binary", "ImageVolume"])
@pytest.mark.parametrize("path", PODS, ids=lambda path: path.stem)
def test_every_container_is_wrapped_or_has_a_reason_and_the_settled_pod_stays(
    path: Path, delivery: str
) -> None:
    chosen = {"when": "Always", "initContainers": ["*"], "containers": ["*"], "delivery": delivery}
    seen = view(policy(remedies={"postInitSleep": chosen}), nodes=[NODE], server=Version(1, 36, 0))
    outcomes, before = OUTCOMES[path.stem], load_pod(path)
    where = before["metadata"]["namespace"]
    decided = decide_pod(before, seen, namespace=where)
    assert {o.container: o.reason for o in decided.outcomes} == {
        name: "Applied" if how in WRAPPED else how for name, how in outcomes.items()
    }
    settled = patched(before, decided)
    after = containers(settled)
    for name, container in containers(before).items():
        command = expected_command(outcomes.get(name), container.get("command", []), delivery)
        assert after[name].get("command", []) == command, name
        for key in ("args", "env", "workingDir", "image"):
            assert after[name].get(key) == container.get(key), (name, key)
    alone = (HELPER,) if delivery == "Auto" else WRAPPED
    is_helped = any(how in alone for how in outcomes.values())
    # A runtime that a RuntimeClass names may be unable to mount an image.
    is_mounted = delivery == "ImageVolume" or (
        delivery == "Auto" and "runtimeClassName" not in before["spec"]
    )
    volumes = {each["name"]: each for each in settled["spec"].get("volumes", ())}
    assert (BROUGHT in volumes) is is_helped
    assert ("image" in volumes.get(BROUGHT, ())) is (is_helped and is_mounted)
    assert (BROUGHT in after) is (is_helped and not is_mounted)
    assert mutate_pod(settled, seen, namespace=where) == settled
