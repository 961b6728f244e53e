"""Every container of a fixture pod that postInitSleep wraps, run before and after the change.

The tests do not have the containers' images. A static executable replaces all their programs. It
is in two root file systems: one without a shell, like upstream Tekton's images, and one with
shells, like Red Hat's images.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

import pytest

from tests.data.expected_outcomes import HELPER, OUTCOMES, WRAPPED
from tests.support import runc
from tests.support.factories import Json, mutate_pod, policy, view
from tests.support.kubelet_expansion import kubelet_expands
from tests.support.reviews import PODS, load_pod
from webhook.core.constants import HELPER_PATH
from webhook.core.remedies import shell_wrapper
from webhook.linger.build import TARGETS, compile_c, host_arch

Root: TypeAlias = Literal["without a shell", "with shells"]
ROOTS: tuple[Root, Root] = ("without a shell", "with shells")
Delivery: TypeAlias = Literal["Auto", "Binary"]

LIFETIME = 0.2
PATHS = {path.stem: path for path in PODS if set(OUTCOMES[path.stem].values()) & {*WRAPPED}}
# The programs that the wrapped containers or their scripts start.
PROGRAMS = (
    *("/bin/argoexec", "/bin/cp", "/bin/gradle", "/bin/php", "/bin/tar", "/argo-bin/bin/argoexec"),
    *("/home/runner/run.sh", "/job/run.sh", "/ko-app/entrypoint", "/ko-app/workingdirinit"),
    *("/tekton/bin/entrypoint", "/worker"),
)
# Volumes that scripts write to, and working directories.
DIRECTORIES = ("/shard", "/tekton/scripts", "/woodpecker", "/workspace")


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("stand-in") / "program"
    source = Path(__file__).with_name("stand_in.c")
    compile_c([source], output, target=TARGETS[host_arch()], flags=("-std=gnu11", "-static", "-Os"))
    return output


@pytest.fixture(scope="module")
def machines(
    machine: runc.Machine, stand_in: Path, linger: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[Root, runc.Machine]:
    """One machine for each root file system."""
    made: dict[Root, runc.Machine] = {}
    for root in ROOTS:
        rootfs = tmp_path_factory.mktemp("rootfs")
        if root == "with shells":
            runc.make_rootfs(rootfs, linger)
        rootfs.chmod(0o755)
        for name in ("dev", "proc", "shared", "sys", "tmp"):
            (rootfs / name).mkdir(exist_ok=True)
        for program, source in [(HELPER_PATH, linger), *((each, stand_in) for each in PROGRAMS)]:
            place = rootfs / program.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.unlink(missing_ok=True)
            place.write_bytes(source.read_bytes())
            place.chmod(0o755)
        for directory in DIRECTORIES:
            place = rootfs / directory.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to("/tmp")
        made[root] = runc.Machine(rootfs, machine.scratch)
    return made


def _after(before: Json, delivery: Delivery) -> Json:
    chosen = {"when": "Always", "initContainers": ["*"], "containers": ["*"]}
    durations = {"minLifetime": f"{LIFETIME * 1000:.0f}ms", "sleep": "1ms"}
    seen = view(policy(remedies={"postInitSleep": {**chosen, **durations, "delivery": delivery}}))
    return mutate_pod(before, seen, namespace=before["metadata"]["namespace"])


def _containers(of: Json) -> dict[str, Json]:
    return {
        c["name"]: c for c in (*of["spec"].get("initContainers", ()), *of["spec"]["containers"])
    }


def _command(of: Json) -> list[str]:
    """Return the command line that the kubelet passes to the runtime."""
    return [kubelet_expands(text) for text in (*of["command"], *of.get("args", ()))]


def _run(machine: runc.Machine, of: Json) -> tuple[int, str, str]:
    """Run a container whose programs exit with 7."""
    said = {each["name"]: each["value"] for each in of.get("env", ()) if "value" in each}
    # PATH must match the root file systems.
    environment = {**said, "PATH": "/bin", "STAND_IN": "7"}
    return machine.run(_command(of), env=environment, cwd=of.get("workingDir") or "/")


def _pairs(before: Json, delivery: Delivery) -> Iterator[tuple[Json, Json, Root]]:
    """Yield each wrapped container before and after the change, and a root that it can run in."""
    after = _containers(_after(before, delivery))
    for name, old in _containers(before).items():
        new = after[name]
        if new.get("command") != old.get("command"):
            for root in ROOTS:
                if root == "with shells" or old["command"][0] not in shell_wrapper.SHELLS:
                    yield old, new, root


@pytest.mark.parametrize("delivery", ["Auto", "Binary"])
@pytest.mark.parametrize("name", PATHS)
def test_wrapped_container_runs_the_same_program_with_the_same_result(
    name: str, delivery: Delivery, machines: dict[Root, runc.Machine]
) -> None:
    """Program, arguments, working directory and exit code are the same."""
    before = load_pod(PATHS[name])
    pairs = list(_pairs(before, delivery))
    wrapped = {old["name"] for old, _, _ in pairs}
    assert wrapped == {c for c, how in OUTCOMES[name].items() if how in WRAPPED}
    done: set[tuple[str, Root]] = set()
    for old, new, root in pairs:
        # One of several containers whose command lines differ only in numbers.
        kind = (re.sub(r"\d+", "", "\0".join(_command(old))), root)
        # With both deliveries, the container runs the same helper.
        same = delivery == "Binary" and OUTCOMES[name][old["name"]] == HELPER
        if same or kind in done:
            continue
        done.add(kind)
        as_it_was = _run(machines[root], old)
        started = time.monotonic()
        assert _run(machines[root], new) == as_it_was, f"{old['name']} {root}"
        assert time.monotonic() - started >= LIFETIME
        if OUTCOMES[name][old["name"]] == HELPER:
            assert as_it_was[0] == 7
            said = [f"{len(text.encode())} {text}" for text in _command(old)]
            assert as_it_was[1].split("\n", 1)[1] == "\n".join([*said, ""])
