"""Fixtures for tests that run the helper or the shell wrapper, also in containers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import runc
from tests.support.wrappers import Wrapper
from tools.cache import exclusive
from webhook.linger.build import build, host_arch


@pytest.fixture(scope="session")
def linger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The helper's executable for this machine, which the workers of a run build once."""
    own = tmp_path_factory.getbasetemp()
    directory = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "linger"
    with exclusive(directory):
        built = directory / f"linger-{host_arch()}"
        return built if built.is_file() else build(host_arch(), directory)


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory, linger: Path) -> runc.Machine:
    """A machine that runs containers."""
    rootfs = runc.make_rootfs(tmp_path_factory.mktemp("rootfs"), linger)
    return runc.Machine(rootfs, tmp_path_factory.mktemp("bundles"))


@pytest.fixture(params=["linger", "ash", "dash", "bash"])
def wrapper(request: pytest.FixtureRequest) -> Wrapper:
    """The helper, and the shell wrapper in each shell."""
    return Wrapper(request.param)
