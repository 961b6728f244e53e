"""Tests of the reason codes."""

from __future__ import annotations

import pytest

from webhook.core.reasons import Reason


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_camel_case_code_and_a_sentence(reason: Reason) -> None:
    assert reason.value.isalnum()
    assert reason.value[0].isupper()
    assert reason.meaning.endswith(".")
    assert isinstance(reason.warns, bool)


@pytest.mark.parametrize(
    "reason",
    [
        "Applied", "NoPolicy", "NamespaceDisabled", "PodOptedOut", "MirrorPod", "WindowsPod",
        "NoCommand", "NativeSidecar", "RuntimeClassMissing", "RuntimeClassConflict",
        "RuntimeClassPreset", "UnstableSELinuxLevel", "ServerTooOld", "NotNeeded", "InternalError",
    ],
)  # fmt: skip
def test_the_reasons_of_the_contract_exist(reason: str) -> None:
    assert reason in list(Reason)
