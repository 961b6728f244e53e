"""Tests of the programs that provoke the race, in front of a runtime that is a script."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lab.provocation import (
    DELAY_MS,
    Provocation,
    Provoked,
    build,
    containerd_drop_in,
    crio_drop_in,
)
from lab.race import read_calls
from tests.support.process import run
from webhook.linger.build import compile_c

pytestmark = pytest.mark.lab

RUNTIME = """\
#!/bin/sh
for last; do :; done
case "$last" in
  gone) echo "no such container" >&2; exit 3;;
  *) cat "$(dirname "$0")/answer" 2>/dev/null; echo "$*" >>"$(dirname "$0")/arguments";;
esac
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("race")
    runtime = directory / "runc"
    runtime.write_text(RUNTIME)
    runtime.chmod(0o755)
    return directory


@pytest.fixture(scope="module")
def for_crio(directory: Path) -> list[Provoked]:
    return build(directory / "runc", directory / "cri-o")


def call(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(program, *arguments)


def answer(directory: Path, **state: object) -> str:
    text = json.dumps({"ociVersion": "1.2.0", **state}, indent=2)
    (directory / "answer").write_text(text)
    return text


def test_state_fails_silently_once_the_container_has_stopped(
    directory: Path, for_crio: list[Provoked]
) -> None:
    answer(directory, id="a", status="stopped")
    for each in for_crio:
        done = call(each.runtime, "--root", "/run/x", "state", "a")
        assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


def test_all_other_answers_of_the_runtime_are_passed_on(
    directory: Path, for_crio: list[Provoked]
) -> None:
    stopped_in_a_text: dict[str, object] = {"annotations": {"a": '"status": "stopped"'}}
    for state in ({"status": "created"}, {"status": "running", **stopped_in_a_text}):
        text = answer(directory, **state)
        done = call(for_crio[0].runtime, "--root", "/run/x", "state", "a")
        assert (done.returncode, done.stdout) == (0, text)
        assert (directory / "arguments").read_text().splitlines()[-1] == "--root /run/x state a"
    done = call(for_crio[0].runtime, "state", "gone")
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "no such container\n")
    assert call(for_crio[0].runtime, "delete", "gone").returncode == 3


def test_calls_are_logged_with_their_times(directory: Path, for_crio: list[Provoked]) -> None:
    each = for_crio[0]
    each.calls.unlink(missing_ok=True)
    answer(directory, status="stopped")
    call(each.runtime, "start", "a")
    call(each.runtime, "delete", "a")
    call(each.runtime, "state", "a")
    lines = each.calls.read_text().splitlines()
    assert [line.split()[:2] for line in lines] == [["start", "a"], ["state", "a"]]
    calls = read_calls(lines)
    assert calls.stopped == 1
    assert calls.starts_ms > [0]
    assert calls.exposures_ms > [0]


def test_the_caller_of_start_is_stopped_on_containerd_only(
    directory: Path, for_crio: list[Provoked]
) -> None:
    shim = build(directory / "runc", directory / "containerd", for_containerd=True)[-1].runtime
    answer(directory, status="running")
    assert shortest_start(shim) >= DELAY_MS / 1000
    assert shortest_start(for_crio[-1].runtime) < DELAY_MS / 1000


def test_start_returns_late_on_demand(directory: Path) -> None:
    answer(directory, status="running")
    late = build(directory / "runc", directory / "late-start", start_delay_ms=DELAY_MS)
    assert all(shortest_start(each.runtime) >= DELAY_MS / 1000 for each in late)


# A stopped caller learns of the end of its child late. The shortest of some times is that without
# the load of the machine.
CALLER = """\
import subprocess, sys, time
for _ in range(4):
    begin = time.monotonic()
    subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
    print(time.monotonic() - begin)
"""


def shortest_start(program: Path) -> float:
    done = call(Path(sys.executable), "-c", CALLER, str(program), "start", "a")
    return min(map(float, done.stdout.split()))


GLIB = r"""
#include <stdio.h>
int g_file_set_contents(const char *path, const char *contents, long length, void **error);
int g_file_set_contents(const char *path, const char *contents, long length, void **error)
{
    (void)error;
    FILE *file = fopen(path, "w");
    return file != NULL && fwrite(contents, 1, (size_t)length, file) > 0 && fclose(file) == 0;
}
"""
CLIENT = """\
import ctypes, sys, time
write = ctypes.CDLL(None).g_file_set_contents
write.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_long, ctypes.c_void_p]
for _ in range(4):
    begin = time.monotonic()
    assert write(sys.argv[1].encode(), b"0", 1, None)
    print(time.monotonic() - begin)
"""


@pytest.mark.parametrize(("name", "late"), [("exit", True), ("exits", False), ("attach", False)])
def test_only_the_exit_file_is_written_late(
    directory: Path, for_crio: list[Provoked], tmp_path: Path, name: str, late: bool
) -> None:
    library = for_crio[-1].library
    assert library is not None
    glib = directory / "glib.so"
    if not glib.exists():
        (directory / "glib.c").write_text(GLIB)
        target = f"{platform.machine()}-linux-gnu"
        flags = ("-shared", "-fPIC")
        compile_c([directory / "glib.c"], glib, target=target, flags=flags, directory=directory)
    done = run(
        sys.executable,
        "-c",
        CLIENT,
        tmp_path / name,
        env={**os.environ, "LD_PRELOAD": f"{library}:{glib}"},
        check=True,
    )
    assert (tmp_path / name).read_text() == "0"
    assert (min(map(float, done.stdout.split())) >= DELAY_MS / 1000) is late


def test_drop_ins_name_a_handler_for_each_provocation() -> None:
    fails = Provoked(Provocation.STATE_FAILS, Path("/a/runtime"), Path("/a/calls"), None)
    late = Provoked(Provocation.LATE_EXIT, Path("/b/runtime"), Path("/b/calls"), Path("/b/late.so"))
    crio = tomllib.loads(crio_drop_in([fails, late], Path("/usr/bin/conmon")))
    handlers = crio["crio"]["runtime"]["runtimes"]
    assert set(handlers) == {"race-f", "race-s"}
    assert "LD_PRELOAD=/b/late.so" in handlers["race-s"]["monitor_env"]
    assert not [each for each in handlers["race-f"]["monitor_env"] if "LD_PRELOAD" in each]
    for major, plugin in ((1, "io.containerd.grpc.v1.cri"), (2, "io.containerd.cri.v1.runtime")):
        containerd = tomllib.loads(containerd_drop_in([fails, late], major))
        assert containerd["version"] == major + 1
        runtimes = containerd["plugins"][plugin]["containerd"]["runtimes"]
        assert runtimes["race-s"]["options"]["BinaryName"] == "/b/runtime"
