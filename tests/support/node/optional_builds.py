"""Builds of runtimes and controllers that `make node` makes only if they are asked for."""

from __future__ import annotations

import pytest

from tests.support.node.tekton_build import RELEASE, TektonBuild, find_tekton
from tools.crio import CrioBuild, find_crio


def crio_or_skip(revision: str) -> CrioBuild:
    """Return a build of CRI-O, or skip the test."""
    build = find_crio(revision)
    if build is None:
        pytest.skip(f"CRI-O {revision} is not built: python -m tools.crio")
    return build


def tekton_or_skip() -> TektonBuild:
    """Return the build of Tekton, or skip the test."""
    build = find_tekton()
    if build is None:
        pytest.skip(f"Tekton {RELEASE} is not built: python -m tests.support.node.tekton_build")
    return build
