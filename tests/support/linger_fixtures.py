"""Fixtures for tests that run the helper or the shell wrapper, also in containers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import runc
from tests.support.wrappers import Wrapper
from webhook.linger.build import build, host_arch


@pytest.fixture(scope="session")
def linger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The helper's executable for this machine."""
    return build(host_arch(), tmp_path_factory.mktemp("linger"))


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory, linger: Path) -> runc.Machine:
    """A machine that runs containers. Without one, the test is skipped, and fails in CI."""
    reason = runc.missing()
    if reason and os.environ.get("CI") == "true":
        pytest.fail(f"no containers: {reason}")
    if reason:
        pytest.skip(f"no containers: {reason}")
    rootfs = runc.make_rootfs(tmp_path_factory.mktemp("rootfs"), linger)
    return runc.Machine(rootfs, tmp_path_factory.mktemp("bundles"))


@pytest.fixture(params=["linger", "ash", "dash", "bash"])
def wrapper(request: pytest.FixtureRequest) -> Wrapper:
    """The helper, and the shell wrapper in each shell."""
    return Wrapper(request.param)
