"""Tests of version parsing and of the features of releases."""

from __future__ import annotations

import pytest

from webhook.core.defects.versions import (
    IMAGE_VOLUMES_LOCKED_ON as LOCKED_ON,
)
from webhook.core.defects.versions import (
    Version,
    mounts_image_volumes,
    parse_runtime,
    parse_version,
    supports_restart_rules,
)


def test_a_version_is_parsed_from_the_start_of_a_text() -> None:
    cases: list[tuple[str, Version | None]] = [
        ("v1.36.2", Version(1, 36, 2)),
        ("1.33.12", Version(1, 33, 12)),
        ("1.36", Version(1, 36, 0)),
        ("v1.33.5-2.rhaos4.20.git1234.el9", Version(1, 33, 5)),
        ("v1.31.4+k3s1", Version(1, 31, 4)),
        ("1.36.0-rc.1", Version(1, 36, 0, final=False)),
        ("1.36.0-rc1", Version(1, 36, 0, final=False)),
        ("v1.36.0-alpha.3", Version(1, 36, 0, final=False)),
        ("1.36.0-dev", Version(1, 36, 0, final=False)),
        ("1.36.0-developer.el9", Version(1, 36, 0)),
        ("", None),
        ("latest", None),
        ("1", None),
        ("1." + "9" * 5000, None),
        ("9" * 5000 + ".1", None),
        ("1.2." + "9" * 5000, Version(1, 2)),
    ]
    assert [(text, parse_version(text)) for text, _ in cases] == cases


def test_a_pre_release_is_not_named_as_its_release() -> None:
    assert str(parse_runtime("cri-o://1.36.0-rc.1")) == "cri-o 1.36.0 pre-release"
    assert [str(parse_version(text)) for text in ("v1.36.0-rc.1", "v1.36.0")] == [
        "1.36.0 pre-release",
        "1.36.0",
    ]


@pytest.mark.parametrize(
    ("kubelet", "runtime", "mounts"),
    [
        ("v1.36.0", "cri-o://1.36.0", True),
        ("v1.36.0", "cri-o://1.31.0", True),
        ("v1.36.0", "cri-o://1.30.9", False),
        ("v1.36.0", "containerd://2.1.0", True),
        ("v1.36.0", "containerd://2.1.0-rc.1", False),
        ("v1.36.0", "containerd://2.0.9", False),
        ("v1.35.9", "containerd://2.1.0", False),
        ("v1.36.0-rc.0", "containerd://2.1.0", False),
        ("", "containerd://2.1.0", False),
        ("v1.36.0", "containerd://", False),
        ("v1.36.0", "docker://27.0.0", False),
    ],
)
def test_image_volumes_need_a_recent_kubelet_and_a_recent_runtime(
    kubelet: str, runtime: str, mounts: bool
) -> None:
    assert mounts_image_volumes(parse_version(kubelet), parse_runtime(runtime), LOCKED_ON) is mounts


@pytest.mark.parametrize(
    ("kubelet", "knows"),
    [
        ("v1.36.0", True),
        ("v1.35.0", True),
        ("v1.35.4-eks-1", True),
        ("v1.35.0-rc.1", False),
        ("v1.34.9", False),
        ("", False),
    ],
)
def test_restart_rules_are_supported_from_1_35_on(kubelet: str, knows: bool) -> None:
    assert supports_restart_rules(parse_version(kubelet)) is knows
