"""Tests of YAML for `kubectl apply`."""

from __future__ import annotations

import pytest
import yaml

from webhook.core.kubectl_yaml import KubectlDumper


@pytest.mark.parametrize(
    "text",
    ["1e5", "12e34", "1.5E3", "08", "0912", "0o17", "0B1", "0X1F", "1_0e5", "y", "N", "2026-1-1"],
)
def test_text_that_kubectl_or_kustomize_reads_as_another_value_is_quoted(text: str) -> None:
    assert yaml.dump({"a": text}, Dumper=KubectlDumper) == f"a: '{text}'\n"


@pytest.mark.parametrize("text", ["1e5x", "500ms", "ny", "many-files", "sha256:12", "1.2.3", "a/y"])
def test_other_text_is_not_quoted(text: str) -> None:
    assert yaml.dump({"a": text}, Dumper=KubectlDumper) == f"a: {text}\n"


def test_numbers_and_booleans_stay_what_they_are() -> None:
    values = [0, -5, 100_000, 1.5, True, False, None]
    text = yaml.dump(values, Dumper=KubectlDumper)
    assert "'" not in text
    assert yaml.safe_load(text) == values
