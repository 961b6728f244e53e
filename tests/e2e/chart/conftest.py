"""A release for each module: tests that only read share it, and the others put it back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.chart_release import default_release, put_back
from tests.support.helm_release import Installation


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A release with the default values, for tests that change nothing of it."""
    with default_release(tmp_path_factory.mktemp("release")) as installation:
        yield installation


@pytest.fixture
def changed_release(release: Installation) -> Iterator[Installation]:
    """The same release, for a test that changes values, policies or replicas."""
    with put_back(release):
        yield release
