"""Tests of the containerd drop-in of `podsettle node-config`, with a real containerd."""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.process import podsettle
from tools.build import containerd

OVERLAYFS = "io.containerd.snapshotter.v1.overlayfs"
MAIN_FILES = {
    1: """
imports = ["{imports}/*.toml"]
[plugins.cri.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.cri.containerd.runtimes.runc.options]
  SystemdCgroup = true
[plugins.cri.registry]
  config_path = "/etc/example/certs.d"
[plugins.cri.cni]
  bin_dir = "/opt/example/bin"
  conf_dir = "/etc/example/net.d"
""",
    2: """
version = 2
imports = ["{imports}/*.toml"]
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = true
[plugins."io.containerd.grpc.v1.cri".registry]
  config_path = "/etc/example/certs.d"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/opt/example/bin"
  conf_dir = "/etc/example/net.d"
""",
    3: """
version = 3
imports = ["{imports}/*.toml"]
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  SystemdCgroup = true
[plugins."io.containerd.cri.v1.images".registry]
  config_path = "/etc/example/certs.d"
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["/opt/example/bin"]
  conf_dir = "/etc/example/net.d"
""",
}
BESIDE = pytest.mark.parametrize(
    ("major", "main_version"),
    [(1, 2), (2, 2), (2, 3)],
    ids=["1.7 beside version 2", "2.1 beside version 2", "2.1 beside version 3"],
)


class RefusedError(Exception):
    """A configuration with which containerd does not start."""


Config = dict[str, Any]
Dump = Callable[[int, str, str], Config]


@pytest.fixture
def dump(tmp_path: Path) -> Dump:
    """The configuration that a containerd makes of a main file and a drop-in, by its own word."""
    imports = tmp_path / "conf.d"
    imports.mkdir()

    def dumped(major: int, main: str, drop_in: str) -> Config:
        (tmp_path / "config.toml").write_text(main.replace("{imports}", str(imports)))
        (imports / "99-podsettle-volatile.toml").unlink(missing_ok=True)
        if drop_in:
            (imports / "99-podsettle-volatile.toml").write_text(drop_in)
        done = subprocess.run(
            [containerd(major), "--config", tmp_path / "config.toml", "config", "dump"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RefusedError(done.stderr)
        found = tomllib.loads(done.stdout)
        del found["imports"]  # 1.7 lists the files that it read
        return found

    return dumped


def printed(*options: str) -> str:
    done = podsettle(
        "node-config", "containerd", "--volatile", "--node-selector", "pool=volatile",
        "-o", "dropin", *options,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def release(major: int) -> str:
    done = subprocess.run(
        [containerd(major), "--version"], capture_output=True, text=True, check=True
    )
    return done.stdout.split()[2]


def cri_settings(config: Config) -> tuple[object, ...]:
    """Return the settings that the main files set: SystemdCgroup, registries, CNI."""
    plugins = config["plugins"]
    v2 = plugins.get("io.containerd.grpc.v1.cri", {})
    runtime = plugins.get("io.containerd.cri.v1.runtime", v2)
    images = plugins.get("io.containerd.cri.v1.images", v2)
    cni = runtime["cni"]
    return (
        runtime["containerd"]["runtimes"]["runc"]["options"]["SystemdCgroup"],
        images["registry"]["config_path"],
        cni.get("bin_dirs") or [cni["bin_dir"]],
        cni["conf_dir"],
    )


SET = (True, "/etc/example/certs.d", ["/opt/example/bin"], "/etc/example/net.d")


@BESIDE
@pytest.mark.parametrize("states_release", [True, False], ids=["with --oldest", "without --oldest"])
def test_drop_in_adds_volatile_and_changes_no_other_setting(
    dump: Dump, major: int, main_version: int, states_release: bool
) -> None:
    options = ("--oldest", release(major)) if states_release else ()
    before = dump(major, MAIN_FILES[main_version], "")
    after = dump(major, MAIN_FILES[main_version], printed(*options))
    assert cri_settings(before) == SET
    assert before["plugins"][OVERLAYFS].pop("mount_options") == []
    assert after["plugins"][OVERLAYFS].pop("mount_options") == ["volatile"]
    assert after == before


def test_containerd_1_starts_beside_no_version_only_without_the_drop_in(dump: Dump) -> None:
    """The printed notes and docs/node-config.md tell it."""
    assert cri_settings(dump(1, MAIN_FILES[1], "")) == SET
    with pytest.raises(RefusedError, match='invalid plugin key URI "cri"'):
        dump(1, MAIN_FILES[1], printed())


def test_containerd_2_reads_cri_tables_of_a_main_file_without_a_version_only_with_the_drop_in(
    dump: Dump,
) -> None:
    """The printed notes and docs/node-config.md tell it."""
    assert cri_settings(dump(2, MAIN_FILES[1], "")) != SET
    with_drop_in = dump(2, MAIN_FILES[1], printed())
    assert cri_settings(with_drop_in) == SET
    assert with_drop_in["plugins"][OVERLAYFS]["mount_options"] == ["volatile"]


@pytest.mark.parametrize(
    ("main_version", "is_known"), [(1, True), (2, True), (3, False)], ids="beside {}".format
)
def test_containerd_2_ignores_a_handler_of_version_2_only_beside_a_main_file_of_version_3(
    dump: Dump, main_version: int, is_known: bool
) -> None:
    """This is why docs/node-config.md warns of CRI tables in the drop-in."""
    handler = '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.added]\n'
    found = dump(2, MAIN_FILES[main_version], f'{printed()}{handler}runtime_type = "x"\n')
    runtimes = found["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]
    assert ("added" in runtimes) == is_known
    assert cri_settings(found) == SET


def test_drop_in_of_version_3_works_only_with_a_main_file_of_version_3(dump: Dump) -> None:
    """This is the reason for the default version. It may change with another containerd."""
    drop_in = printed("--config-version", "3")
    assert cri_settings(dump(2, MAIN_FILES[3], drop_in)) == SET
    ignored = cri_settings(dump(2, MAIN_FILES[2], drop_in))
    assert ignored == cri_settings(dump(2, "version = 2\nimports = []\n", ""))
    assert not set(map(str, ignored)) & set(map(str, SET))


@BESIDE
def test_only_containerd_1_drops_other_snapshotter_settings_of_the_main_file(
    dump: Dump, major: int, main_version: int
) -> None:
    main = f'{MAIN_FILES[main_version]}\n[plugins."{OVERLAYFS}"]\nroot_path = "/data/overlayfs"\n'
    root_path = {"root_path": "/data/overlayfs"}
    assert root_path.items() <= dump(major, main, "")["plugins"][OVERLAYFS].items()
    with_drop_in = dump(major, main, printed())["plugins"][OVERLAYFS]
    assert with_drop_in["mount_options"] == ["volatile"]
    assert with_drop_in["root_path"] == ("" if major == 1 else "/data/overlayfs")
