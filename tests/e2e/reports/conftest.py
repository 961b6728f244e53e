"""What the pages of reports are tried with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.client_fixtures import kubelet, namespace
from tests.support.doc_scenario import Trial

__all__ = ["kubelet", "namespace"]


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page_name: str) -> Trial:
    """The page `page_name`, in a directory where its commands can be typed."""
    monkeypatch.chdir(tmp_path)
    return Trial(page_name, tmp_path)
