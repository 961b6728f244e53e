"""containerd with what `node-config containerd --for` prints, in the file of a distribution."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.node_config import CONTAINERD, printed
from tools.build import containerd

pytestmark = pytest.mark.slow

# Settings that a wrong version in the printed text would undo.
EKS = """\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "example/pause"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
base_runtime_spec = "/example/base-runtime-spec.json"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = true
"""
# Without the line with its version, which is 3 up to Talos 1.14, and then 4.
TALOS = """
[plugins."io.containerd.cri.v1.images"]
discard_unpacked_layers = true
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
base_runtime_spec = "/example/base-spec.json"
"""
OVERLAYFS = "io.containerd.snapshotter.v1.overlayfs"


def document(distribution: str) -> Any:
    return yaml.safe_load(printed(*CONTAINERD, "-o", "dropin", "--for", distribution))


def config(line: str, path: Path, command: str) -> str:
    arguments = [str(containerd(line)), "--config", str(path), "config", command]
    return subprocess.run(arguments, check=True, capture_output=True, text=True).stdout


def assert_only_volatile_is_added(plain: dict[str, Any], volatile: dict[str, Any]) -> None:
    plugins = plain["plugins"]
    overlayfs = plugins[OVERLAYFS] | {"mount_options": ["volatile"]}
    assert volatile == plain | {"plugins": plugins | {OVERLAYFS: overlayfs}}


@pytest.mark.parametrize("line", ["1.7", "2.3", "2.4"])
def test_eks_text_adds_volatile_and_changes_nothing_else(tmp_path: Path, line: str) -> None:
    # nodeadm merges the text into its file of version 2, which containerd 2 then migrates.
    path = tmp_path / "config.toml"
    dumps = []
    for text in ("", document("eks")["spec"]["containerd"]["config"]):
        path.write_text(EKS + text)
        if line != "1.7":
            path.write_text(config(line, path, "migrate"))
        dumps.append(config(line, path, "dump"))
    assert all("SystemdCgroup = true" in dump for dump in dumps)
    assert_only_volatile_is_added(*map(tomllib.loads, dumps))


@pytest.mark.parametrize(("line", "version"), [("2.3", "3"), ("2.4", "3"), ("2.4", "4")])
def test_talos_text_adds_volatile_and_changes_nothing_else(
    tmp_path: Path, line: str, version: str
) -> None:
    # Talos merges its parts into one file, which the main file imports.
    path, merged = tmp_path / "config.toml", tmp_path / "cri.toml"
    path.write_text(f"version = {version}\nimports = ['{merged}']\n")
    dumps = []
    for text in ("", document("talos")["machine"]["files"][0]["content"]):
        merged.write_text(f"version = {version}{TALOS}{text}")
        dumps.append(config(line, path, "dump"))
    assert all("/example/base-spec.json" in dump for dump in dumps)
    assert_only_volatile_is_added(*map(tomllib.loads, dumps))
