"""The script that measures SELinux relabelling: its table, and what it says without SELinux."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.selinux_relabel import (
    NO_PROOF,
    NO_VOLUME,
    RELABELLED,
    SKIPPED,
    as_text,
    has_selinux,
)
from tests.support.paths import ROOT

pytestmark = pytest.mark.lab


def results(runtime: str = "cri-o://1.33.12", *, selinux: bool = True) -> dict[str, Any]:
    seconds = {NO_VOLUME: [1.0, 1.5], RELABELLED: [21.0, 21.5], SKIPPED: [1.5, 2.0]}
    return {
        "environment": {"containerRuntimeVersion": runtime},
        "selinux": selinux,
        "seconds": seconds,
    }


def test_table_says_that_figures_without_selinux_or_crio_show_nothing() -> None:
    text = as_text(results(selinux=False))
    assert text.index(NO_PROOF) < text.index(RELABELLED)
    assert "This runtime is not CRI-O" in as_text(results("containerd://2.1.9"))


@pytest.mark.parametrize(
    ("context", "found"),
    [
        ("system_u:system_r:container_t:s0:c123,c456", True),
        ("", False),
        ("unconfined", False),
        ("cri-containerd.apparmor.d (enforce)", False),
        ("/:usr:bin", False),
    ],
)
def test_only_a_context_of_selinux_is_one(context: str, found: bool) -> None:
    assert has_selinux([context]) is found


def test_script_runs_alone_without_the_project(tmp_path: Path) -> None:
    copy = tmp_path / "selinux_relabel.py"
    copy.write_bytes((ROOT / "lab" / "selinux_relabel.py").read_bytes())
    done = subprocess.run(
        [sys.executable, "-I", "-S", copy], cwd=tmp_path, env={"PATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "selinux_relabel: kubectl is not installed\n"
