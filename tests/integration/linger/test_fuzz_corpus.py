"""The inputs of the coverage-guided fuzzer are replayed on linger's code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.guided.__main__ import HERE, LINGER
from tests.support.paths import FUZZ_CORPUS
from tests.support.process import run
from webhook.linger.build import SOURCE, TARGETS, compile_c, host_arch


@pytest.mark.parametrize("name", LINGER)
def test_recorded_inputs_keep_the_invariants(name: str, tmp_path: Path) -> None:
    program = tmp_path / "replay"
    flags = ["-std=c11", "-D_GNU_SOURCE", "-fsanitize=undefined", "-fsanitize-trap=all"]
    defines = ["-DREPLAY", f"-D{LINGER[name]}", f"-I{SOURCE}", "-Wno-unused-function"]
    target = TARGETS[host_arch()]
    compile_c([HERE / "linger.c"], program, target=target, flags=[*flags, *defines])
    files = sorted((FUZZ_CORPUS / name).iterdir())
    assert files
    done = run(program, *files)
    assert done.returncode == 0, done.stderr
