"""The build of linger for each architecture, and linger's parser of durations as a library."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.linger_process import address, logged
from tests.support.process import run
from tests.support.tls_listeners import (
    alert,
    handshake,
    listening,
    server_context,
    stay_silent,
)
from webhook.linger.build import HERE, SOURCE, TARGETS, build, compile_c, host_arch, main

pytestmark = pytest.mark.slow

MAX_BYTES = 81920
# A quarter of buildah's limit, because Zig opens more files on machines with more cores.
MAX_OPEN_FILES = 250
# Byte order and machine in the ELF header, and the emulator for other architectures.
ELF = {
    "amd64": ("<", 62, "qemu-x86_64-static"),
    "arm64": ("<", 183, "qemu-aarch64-static"),
    "s390x": (">", 22, "qemu-s390x-static"),
    "ppc64le": ("<", 21, "qemu-ppc64le-static"),
}
PT_DYNAMIC, PT_INTERP = 2, 3


EACH_ARCH = [
    arch if arch == host_arch() else pytest.param(arch, marks=pytest.mark.needs(ELF[arch][2]))
    for arch in sorted(TARGETS)
]


@pytest.fixture(scope="module", params=EACH_ARCH)
def arch(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def executable(arch: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(arch, tmp_path_factory.mktemp("built"))


def test_executable_is_small_static_and_for_its_architecture(arch: str, executable: Path) -> None:
    content = executable.read_bytes()
    order, expected, _ = ELF[arch]
    assert len(content) < MAX_BYTES
    assert content[:6] == b"\x7fELF\x02" + (b"\x01" if order == "<" else b"\x02")
    kind, machine = struct.unpack_from(f"{order}HH", content, 16)
    assert (kind, machine) == (2, expected)
    table, size, count = (
        struct.unpack_from(f"{order}Q", content, 32)[0],
        *struct.unpack_from(f"{order}HH", content, 54),
    )
    kinds = {struct.unpack_from(f"{order}I", content, table + size * n)[0] for n in range(count)}
    assert not kinds & {PT_DYNAMIC, PT_INTERP}
    assert os.access(executable, os.X_OK)


def test_executable_contains_no_path_of_the_build_machine(executable: Path) -> None:
    content = executable.read_bytes()
    for path in (Path.home(), HERE, executable.parent):
        assert str(path).encode() + b"/" not in content


def test_executable_runs_and_returns_the_exit_code_of_its_command(
    arch: str, executable: Path
) -> None:
    emulator = [] if arch == host_arch() else [ELF[arch][2]]
    command = [*emulator, str(executable), "--min-lifetime", "10ms", "--"]
    assert subprocess.run([*command, "sh", "-c", "exit 42"], check=False).returncode == 42
    assert subprocess.run([*command, "sh", "-c", "kill -9 $$"], check=False).returncode == 137


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_wait_kubelet_works_with_the_byte_order_of_each_architecture(
    arch: str, executable: Path, host: str
) -> None:
    emulator = [] if arch == host_arch() else [ELF[arch][2]]
    with listening(alert(80), handshake(server_context()), host=host) as server:
        wait = ["wait-kubelet", "--timeout", "1h", "--port", str(server.port)]
        done = run(*emulator, executable, *wait, env={"HOST_IP": host})
    assert (done.returncode, done.stderr) == (
        0,
        f"linger: the kubelet at {host} is ready: it begins a TLS handshake\n",
    )


def test_wait_works_on_each_architecture(arch: str, executable: Path) -> None:
    emulator = [] if arch == host_arch() else [ELF[arch][2]]
    with listening(stay_silent) as server:
        targets = ["--tcp", address(server), "--dns", "localhost"]
        told = logged(executable, *targets, around=(*emulator,))
    assert told == [
        "dns localhost answers after N s",
        f"tcp {address(server)} answers after N s",
    ]


def test_same_source_gives_the_same_bytes(
    arch: str, executable: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere/src"
    shutil.copytree(SOURCE, elsewhere)
    # A separate cache for linger's sources. musl's object files come from the shared cache.
    monkeypatch.setenv("ZIG_LOCAL_CACHE_DIR", str(tmp_path / "cache"))
    assert build(arch, tmp_path, elsewhere).read_bytes() == executable.read_bytes()


def test_build_with_an_empty_cache_opens_few_files(tmp_path: Path) -> None:
    """The hard limit in buildah's chroot isolation and in Tekton's buildah task is 1,024 files."""
    limit = f"--nofile={MAX_OPEN_FILES}:{MAX_OPEN_FILES}"
    module = [sys.executable, "-m", "webhook.linger.build"]
    done = run(
        "prlimit",
        limit,
        *module,
        "--arch",
        host_arch(),
        "--out",
        tmp_path / "out",
        env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(tmp_path / "cache")},
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_undefined_symbol_error_says_which_list_to_extend(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "src"
    source.mkdir()
    (source / "main.c").write_text("#include <stdio.h>\nint main(void) { return fflush(0); }\n")
    assert main(["--out", str(tmp_path), "--arch", host_arch()], source) == 1
    error = capsys.readouterr().err
    assert "undefined symbol: fflush" in error
    assert (
        "add the file of musl that defines it to MUSL_SOURCES in webhook/linger/musl_build.py"
        in error
    )


def test_build_command_builds_only_the_given_architecture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arch = host_arch()
    assert main(["--out", str(tmp_path), "--arch", arch]) == 0
    assert [path.name for path in tmp_path.iterdir()] == [f"linger-{arch}"]
    assert capsys.readouterr().out.startswith(f"linger-{arch}: ")


def test_unknown_architecture_exits_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--out", str(tmp_path), "--arch", "amd64,vax"])
    assert caught.value.code == 2
    assert "unknown architecture 'vax': choose from amd64, arm64" in capsys.readouterr().err


def test_compiler_error_is_printed_and_keeps_the_old_executable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "src"
    source.mkdir()
    (source / "main.c").write_text("int main(void) { return nonsense; }\n")
    out = tmp_path / "out"
    out.mkdir()
    (out / "linger-amd64").write_text("the last one that worked")
    assert main(["--out", str(out), "--arch", "amd64"], source) == 1
    assert "nonsense" in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["linger-amd64"]
    assert (out / "linger-amd64").read_text() == "the last one that worked"


UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
DURATION_MAX = (2**63 - 1) // 2


@pytest.fixture(scope="module")
def duration_c(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """duration.c, compiled to a shared library for this machine's C library."""
    library = tmp_path_factory.mktemp("duration") / "duration.so"
    target = TARGETS[host_arch()].replace("musl", "gnu")
    flags = ["-std=c11", "-Os", "-shared", "-fPIC", "-fno-sanitize=all"]
    compile_c([SOURCE / "duration.c"], library, target=target, flags=flags)
    return ctypes.CDLL(str(library))


def parse(duration_c: ctypes.CDLL, text: str) -> int | None:
    value = ctypes.c_int64()
    accepted = duration_c.parse_duration(text.encode(), ctypes.byref(value))
    return value.value if accepted & 0xFF else None


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("1.5s", 1_500_000_000),
        ("0.0000000001s", 0),
        ("1.9ns", 1),
        ("0.100000000000000000000s", 100_000_000),
        ("1281023h", 1281023 * UNITS["h"]),
    ],
)
def test_duration_is_parsed_to_nanoseconds(
    duration_c: ctypes.CDLL, text: str, nanoseconds: int
) -> None:
    assert parse(duration_c, text) == nanoseconds


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "5", "00", "0 ", ".", ".s", "s", "ms", "1x", "1S", "1 s", " 1s", "1s ", "-1s"),
        *("+1s", "1..5s", "1.5.5s", "1e3s", "1s5", "1,5s", "١s", "0x1s", "1d"),  # noqa: RUF001
        *("1281024h", "99999999999999999999h", "9223372036854775807ns", "1281023h60m"),
    ],
)
def test_invalid_duration_is_rejected(duration_c: ctypes.CDLL, text: str) -> None:
    assert parse(duration_c, text) is None


@given(
    terms=st.lists(
        st.tuples(
            st.from_regex(r"[0-9]{1,12}(\.[0-9]{0,12})?|\.[0-9]{1,12}", fullmatch=True),
            st.sampled_from(sorted(UNITS)),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_duration_with_several_terms_is_their_sum(
    duration_c: ctypes.CDLL, terms: list[tuple[str, str]]
) -> None:
    exact = sum(_exact(number) * UNITS[unit] for number, unit in terms)
    parsed = parse(duration_c, "".join(number + unit for number, unit in terms))
    if exact >= DURATION_MAX + 1:
        assert parsed is None
    elif parsed is None:
        assert exact > DURATION_MAX - len(terms)
    else:
        # The error of each digit after the decimal point is less than a nanosecond.
        assert 0 <= exact - parsed < 13 * len(terms)


def _exact(number: str) -> Fraction:
    whole, _, fraction = number.partition(".")
    return int(whole or "0") + Fraction(int(fraction or "0"), 10 ** len(fraction))
