"""Tests of the releases of Kubernetes that are built."""

from __future__ import annotations

import re

import pytest

from tools.build import CLUSTERS, SETS
from tools.kube_versions import KUBE_VERSION, chosen


def test_unknown_kubernetes_version_is_an_error_that_names_the_known_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(KUBE_VERSION, "1.29")
    with pytest.raises(SystemExit, match=r"^kube: KUBE_VERSION=1\.29: choose one of 1\.31, 1\.32"):
        chosen()


# The sources of `poster` and `cri` are in their own modules.
PROGRAMS = {
    name: each for name, each in {**SETS, **CLUSTERS}.items() if name not in {"poster", "cri"}
}


def test_every_program_is_a_tool_of_its_go_module() -> None:
    """`go mod tidy` removes what only other programs need, and then the build fails."""
    for name, programs in PROGRAMS.items():
        text = (programs.module / "go.mod").read_text()
        (tools,) = re.findall(r"^tool (\(.*?\)|.*?$)", text, re.DOTALL | re.MULTILINE)
        wanted = set(programs.programs.values())
        assert wanted <= set(tools.strip("()").split()), name
