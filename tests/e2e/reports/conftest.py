"""Fixtures for tests of the pages about reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.client_fixtures import kubelet, namespace
from tests.support.doc_scenario import DocScenario

__all__ = ["kubelet", "namespace"]


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page_name: str) -> DocScenario:
    """The page `page_name`, with a working directory for its commands."""
    monkeypatch.chdir(tmp_path)
    return DocScenario(page_name, tmp_path)
