"""Every container of a fixture pod that postInitSleep wraps, run before and after the change.

The tests do not have the containers' images. A static executable replaces all their programs. It
is in two root file systems: one without a shell, like upstream Tekton's images, and one with
shells, like Red Hat's images.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import pytest

from tests.data.expected_outcomes import HELPER, OUTCOMES, SHELL, WRAPPED
from tests.support import runc
from tests.support.factories import Json, container, mutate_pod, pod, policy, view
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
# Tekton's three init containers, as in tektoncd/pipeline pkg/pod/pod.go.
TEKTON = pod(
    container(
        "prepare",
        *("/ko-app/entrypoint", "init", "/ko-app/entrypoint", "/tekton/bin/entrypoint", "step-a"),
        workingDir="/",
    ),
    container(
        "place-scripts",
        "sh",
        args=[
            "-c",
            'scriptfile="/tekton/scripts/script-0"\n'
            "touch ${scriptfile} && chmod +x ${scriptfile}\n"
            "cat > ${scriptfile} << '_EOF_'\nIyEvYmluL3NoCg==\n_EOF_\n"
            '/tekton/bin/entrypoint decode-script "${scriptfile}"\n',
        ],
    ),
    container(
        "working-dir-initializer",
        "/ko-app/workingdirinit",
        args=["/workspace/src", "/workspace/a b"],
        workingDir="/workspace",
    ),
    restartPolicy="Never",
)
# The programs that the wrapped containers or their scripts start.
PROGRAMS = (
    *("/bin/argoexec", "/bin/cp", "/bin/gradle", "/bin/php", "/bin/tar", "/argo-bin/bin/argoexec"),
    *("/home/runner/run.sh", "/job/run.sh", "/ko-app/entrypoint", "/ko-app/workingdirinit"),
    *("/tekton/bin/entrypoint", "/worker"),
)
# Volumes that scripts write to, and working directories.
DIRECTORIES = ("/shard", "/tekton/scripts", "/woodpecker", "/workspace")


class Ran(NamedTuple):
    code: int
    out: str
    err: str


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


def _environment(of: Json, how: str) -> dict[str, str]:
    said = {each["name"]: each["value"] for each in of.get("env", ()) if "value" in each}
    # PATH must match the root file systems.
    return {**said, "PATH": "/bin", "STAND_IN": how}


def _run(machine: runc.Machine, of: Json, how: str) -> Ran:
    environment, where = _environment(of, how), of.get("workingDir") or "/"
    return Ran(*machine.run(_command(of), env=environment, cwd=where))


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
        as_it_was = _run(machines[root], old, "7")
        started = time.monotonic()
        assert _run(machines[root], new, "7") == as_it_was, f"{old['name']} {root}"
        assert time.monotonic() - started >= LIFETIME
        if OUTCOMES[name][old["name"]] == HELPER:
            assert as_it_was.code == 7
            said = [f"{len(text.encode())} {text}" for text in _command(old)]
            assert as_it_was.out.split("\n", 1)[1] == "\n".join([*said, ""])


@pytest.mark.parametrize("name", PATHS)
def test_wrapped_container_is_terminated_by_the_same_signal(
    name: str, machines: dict[Root, runc.Machine]
) -> None:
    before = load_pod(PATHS[name])
    done: set[tuple[str, Root]] = set()
    for old, new, root in _pairs(before, "Auto"):
        if OUTCOMES[name][old["name"]] == SHELL or (old["command"][0], root) in done:
            continue
        done.add((old["command"][0], root))
        environment = _environment(old, "wait")
        ended = []
        for each in (old, new):
            with machines[root].start(_command(each), env=environment) as running:
                while running.read_line() != "ready":
                    assert running.runc.poll() is None
                running.signal(signal.SIGTERM)
                ended.append(running.finish())
        assert ended == [(43, "", "")] * 2, f"{old['name']} {root}"


@pytest.mark.parametrize("code", [0, 1, 255])
@pytest.mark.parametrize("image", ["upstream", "Red Hat"])
def test_tekton_init_containers_are_wrapped_by_shell_or_helper_depending_on_their_command(
    image: str, code: int, machines: dict[Root, runc.Machine]
) -> None:
    """Of upstream's images, only that of place-scripts has a shell. Red Hat's images have shells.

    podsettle does not know the image. It decides by the command whether a shell exists.
    """
    after = _containers(_after(TEKTON, "Auto"))
    for old in TEKTON["spec"]["initContainers"]:
        new = after[old["name"]]
        of_shell = old["name"] == "place-scripts"
        assert shell_wrapper.is_wrapped(new["command"]) is of_shell
        assert (new["command"][0] == HELPER_PATH) is not of_shell
        assert new.get("args") == old.get("args")
        root: Root = "with shells" if of_shell or image == "Red Hat" else "without a shell"
        as_it_was = _run(machines[root], old, str(code))
        assert as_it_was.code == code
        assert as_it_was.out.startswith(f"{3 if of_shell else len(_command(old))} in ")
        started = time.monotonic()
        assert _run(machines[root], new, str(code)) == as_it_was
        assert time.monotonic() - started >= LIFETIME


def test_only_one_root_file_system_contains_a_shell(machines: dict[Root, runc.Machine]) -> None:
    """A container that runs in the root without a shell therefore needs none."""
    for root, has in zip(ROOTS, (False, True), strict=True):
        assert (machines[root].rootfs / "bin/sh").exists() is has
