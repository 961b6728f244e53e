"""The explanation of a remedy."""

from __future__ import annotations

import pytest

from webhook.core.remedies import REMEDIES
from webhook.inspect.explain.remedy import explain_remedy
from webhook.inspect.explain.text import as_text


@pytest.mark.parametrize("name", REMEDIES)
def test_every_remedy_is_explained_with_its_settings_and_reasons(name: str) -> None:
    explained = explain_remedy(name)
    assert bool(explained.settings) != bool(explained.values)
    assert all(each.description for each in explained.settings)
    text = as_text(explained)
    assert text.startswith(f"{name}: {REMEDIES[name].description}\n")
    assert "…" not in text
    for reason in REMEDIES[name].reasons:
        assert reason in text


def test_remedy_names_the_defect_that_it_is_for_and_its_settings() -> None:
    lines = as_text(explain_remedy("postInitSleep")).splitlines()
    assert any("(cri-o-9840)" in line for line in lines)
    assert any(line.startswith("  minLifetime: ") for line in lines)
