"""Fixtures for programs and resources that the benchmark needs."""

from __future__ import annotations

import os
import shutil

import pytest

from bench.errors import BenchError
from bench.servers import non_loopback_address
from tools import build


@pytest.fixture(scope="session")
def load_tool() -> None:
    """Skip the test without wrk, or fail it in CI."""
    if shutil.which("wrk") is None:
        _lack("wrk is not installed (Debian: wrk)")


@pytest.fixture(scope="session")
def go_webhook() -> None:
    """Skip the test without agnhost, or fail it in CI."""
    if not build.is_built(build.PEERS):
        _lack("agnhost is not built: run `make peers`")


@pytest.fixture(scope="session")
def address() -> None:
    """Skip the test without an address other than the loopback address, or fail it in CI."""
    try:
        non_loopback_address()
    except BenchError as error:
        _lack(str(error))


def _lack(what: str) -> None:
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(what)
    pytest.skip(what)
