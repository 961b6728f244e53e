"""Tests of `podsettle node-config containerd --for`, the forms that distributions take."""

from __future__ import annotations

import tomllib
from typing import Any

import yaml

from tests.support.node_config import CONTAINERD, printed, refused

VOLATILE = (*CONTAINERD, "-o", "dropin", "--for")
OPEN_FILES = ("containerd", "--open-files", "65536:524288", "--for")
TABLE = {"plugins": {"io.containerd.snapshotter.v1.overlayfs": {"mount_options": ["volatile"]}}}
LIMITS = {"rlimits": [{"type": "RLIMIT_NOFILE", "soft": 65536, "hard": 524288}]}


def document(*arguments: str) -> Any:
    return yaml.safe_load(printed(*arguments))


def test_eks_node_config_contains_the_table_without_a_version() -> None:
    node_config = document(*VOLATILE, "eks")
    assert node_config["apiVersion"] == "node.eks.aws/v1alpha1"
    assert node_config["kind"] == "NodeConfig"
    assert tomllib.loads(node_config["spec"]["containerd"]["config"]) == TABLE


def test_talos_patch_contains_the_table_without_a_version() -> None:
    (file,) = document(*VOLATILE, "talos")["machine"]["files"]
    assert file["path"] == "/etc/cri/conf.d/20-customization.part"
    assert file["op"] == "create"
    assert tomllib.loads(file["content"]) == TABLE


def test_limits_on_open_files_are_in_the_base_runtime_spec() -> None:
    spec = document(*OPEN_FILES, "eks")["spec"]
    assert spec["containerd"]["baseRuntimeSpec"] == {"process": LIMITS}
    machine = document(*OPEN_FILES, "talos")["machine"]
    assert machine["baseRuntimeSpecOverrides"] == {"process": LIMITS}


def test_limit_above_the_default_of_the_kernel_is_warned_of() -> None:
    """runc fails for it (EPERM of setrlimit), so no container starts."""
    for hard, warned in ((1_048_576, False), (1_048_577, True)):
        text = printed("containerd", "--open-files", f"65536:{hard}", "--for", "talos")
        assert ("fs.nr_open" in text) == warned


def test_unknown_distribution_is_refused_with_the_known_ones() -> None:
    assert "'k3s' is not one of 'eks', 'talos'" in refused(*VOLATILE, "k3s")


def test_options_without_effect_on_a_distribution_are_refused() -> None:
    assert "add -o dropin" in refused(*CONTAINERD, "--for", "eks")
    assert "add -o dropin" in refused(*CONTAINERD, "--for", "eks", "-o", "runtimeclass")
    assert "has no effect with --for eks" in refused(*VOLATILE, "eks", "--config-version", "2")
    assert "takes no other option" in refused(*OPEN_FILES, "eks", "-o", "dropin")
    assert "mount_options" in refused(*VOLATILE, "eks", "--oldest", "1.6.10")
