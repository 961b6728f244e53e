"""Each containerd beside each main file: the printed drop-in changes what it promises, only.

Each configuration is what `containerd config dump` says. `make test-long` has all release lines.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.containerd_files import IMPORTS, MAIN_FILES
from tests.support.long_forms import IS_LONG
from tests.support.node_config import CONTAINERD, printed
from tests.support.paths import DOCS
from tests.support.process import run as run_program
from tools.build import CONTAINERD as BUILDS
from tools.build import containerd

pytestmark = pytest.mark.slow

OVERLAYFS = "io.containerd.snapshotter.v1.overlayfs"
LINES = tuple(BUILDS) if IS_LONG else ("1.7", "2.3", "2.4")
MIGRATES_EACH_FILE = ("2.3", "2.4")
"""The lines that migrate the main file and each drop-in by themselves."""

Config = dict[str, Any]
Dump = Callable[[str, str, str], Config]


class RefusedError(Exception):
    """A configuration with which containerd does not start."""


def run(line: str, *arguments: str | Path) -> str:
    done = run_program(containerd(line), *arguments)
    if done.returncode:
        raise RefusedError(done.stderr)
    return done.stdout


@pytest.fixture
def dump(tmp_path: Path) -> Dump:
    """The configuration that a containerd makes of a main file and a drop-in."""
    imports, main = tmp_path / "conf.d", tmp_path / "config.toml"
    imports.mkdir()

    def dumped(line: str, text: str, drop_in: str) -> Config:
        main.write_text(text.replace(IMPORTS, str(imports)))
        (imports / "99-podsettle-volatile.toml").unlink(missing_ok=True)
        if drop_in:
            (imports / "99-podsettle-volatile.toml").write_text(drop_in)
        found = tomllib.loads(run(line, "--config", main, "config", "dump"))
        del found["imports"]  # 1.7 lists the files that it read
        return found

    return dumped


def default_file(line: str) -> str:
    """Return what `containerd config default` prints, with the import of the drop-ins."""
    text = run(line, "config", "default")
    return re.sub(r"(?m)^imports = .*$", f'imports = ["{IMPORTS}/*.toml"]', text)


def main_files(line: str) -> Iterator[str]:
    yield "default"
    yield from (name for name in MAIN_FILES if (name, line) != ("k3s-v3", "1.7"))


def text_of(name: str, line: str) -> str:
    return default_file(line) if name == "default" else MAIN_FILES[name]


def drop_ins(line: str) -> Iterator[str]:
    yield "2"
    if line != "1.7":
        yield "3"
    if line in MIGRATES_EACH_FILE:
        yield "4"


def drop_in(version: str, *options: str) -> str:
    return printed(*CONTAINERD, "-o", "dropin", "--config-version", version, *options)


COMBINATIONS = [
    (line, name, version)
    for line in LINES
    for name in main_files(line)
    for version in drop_ins(line)
]


def outcome_of(line: str, name: str, version: str) -> str:
    """Return what docs/node-config.md says of a combination."""
    file = {"unversioned": "none", "k3s-v3": "3", "aks": "3"}.get(name, "2")
    if name == "default":
        file = {"1.7": "2", "2.0": "3", "2.1": "3", "2.2": "3"}.get(line, "4")
    if (line, file) == ("1.7", "none"):
        return "refused"
    if line in ("1.7", *MIGRATES_EACH_FILE) or file == "3":
        return "only volatile"
    if file == "2":
        return "only volatile" if version == "2" else "main file ignored"
    return "main file read" if version == "2" else "only volatile"


@pytest.mark.parametrize(("line", "name", "version"), COMBINATIONS)
def test_drop_in_changes_only_what_the_page_says(
    dump: Dump, line: str, name: str, version: str
) -> None:
    main, text = text_of(name, line), drop_in(version)
    before = dump(line, main, "")
    assert before["plugins"][OVERLAYFS].pop("mount_options") == []
    outcome = outcome_of(line, name, version)
    if outcome == "refused":
        with pytest.raises(RefusedError, match='invalid plugin key URI "cri"'):
            dump(line, main, text)
        return
    after = dump(line, main, text)
    assert after["plugins"][OVERLAYFS].pop("mount_options") == ["volatile"]
    if outcome == "main file ignored":
        assert "SystemdCgroup = true" not in main or not has_systemd_cgroup(after)
        assert after != before
    elif outcome == "main file read":
        assert not has_systemd_cgroup(before)
        assert has_systemd_cgroup(after)
    else:
        assert after == before


def has_systemd_cgroup(config: Config) -> bool:
    runtimes = config["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]
    return bool(runtimes["runc"]["options"].get("SystemdCgroup"))


@pytest.mark.parametrize("line", LINES)
def test_mount_options_of_the_main_file_are_replaced(dump: Dump, line: str) -> None:
    main = f'{MAIN_FILES["kind"]}\n[plugins."{OVERLAYFS}"]\nmount_options = ["metacopy=off"]\n'
    assert dump(line, main, "")["plugins"][OVERLAYFS]["mount_options"] == ["metacopy=off"]
    assert dump(line, main, drop_in("2"))["plugins"][OVERLAYFS]["mount_options"] == ["volatile"]


@pytest.mark.parametrize("line", LINES)
def test_only_containerd_1_drops_other_snapshotter_settings_of_the_main_file(
    dump: Dump, line: str
) -> None:
    main = f'{MAIN_FILES["kind"]}\n[plugins."{OVERLAYFS}"]\nroot_path = "/data/overlayfs"\n'
    found = dump(line, main, drop_in("2"))["plugins"][OVERLAYFS]
    assert found["mount_options"] == ["volatile"]
    assert found["root_path"] == ("" if line == "1.7" else "/data/overlayfs")


@pytest.mark.parametrize("line", [line for line in LINES if line != "1.7"])
def test_a_migrated_main_file_keeps_the_option_without_the_drop_in(
    dump: Dump, line: str, tmp_path: Path
) -> None:
    """This is why the drop-in is removed before `containerd config migrate`."""
    dump(line, MAIN_FILES["kind"], drop_in("2"))
    migrated = run(line, "--config", tmp_path / "config.toml", "config", "migrate")
    found = dump(line, migrated, "")
    assert found["plugins"][OVERLAYFS]["mount_options"] == ["volatile"]


PAGE = (DOCS / "node-config.md").read_text()
SNAPSHOTTER, HANDLER, IS_READ = (
    re.search(rf"^ *\$ ({start}.*?)(?: {{2,}}#.*)?$", PAGE, re.MULTILINE)
    for start in (
        "containerd config dump .* snapshotter = ",
        "containerd config dump .*default_runtime_name",
        "containerd config dump .*overlayfs.*volatile",
    )
)
MOUNTED = next(line for line in PAGE.splitlines() if line.startswith("$ findmnt -rn"))


def prints(command: str, output: str) -> list[str]:
    """Run the part of a command behind its first program, which prints this output."""
    rest = command.partition("|")[2].partition("#")[0]
    done = run_program("sh", "-c", rest, input=output)
    assert bool(done.returncode) is (done.stdout.strip() in ("", "0"))
    return done.stdout.splitlines() if done.returncode == 0 else []


@pytest.mark.parametrize("line", LINES)
def test_printed_checks_fail_where_the_drop_in_has_no_effect(
    dump: Dump, line: str, tmp_path: Path
) -> None:
    def text(main: str, drop_in: str) -> str:
        dump(line, main, drop_in)
        return run(line, "--config", tmp_path / "config.toml", "config", "dump")

    assert SNAPSHOTTER
    assert HANDLER
    assert IS_READ
    kind = text(MAIN_FILES["kind"], drop_in("2"))
    unread = MAIN_FILES["kind"].replace(f"{IMPORTS}/*.toml", "/nowhere/*.toml")
    nvidia, other_runc = (
        MAIN_FILES["kind"].replace('name = "runc"', f'name = "{name}"')
        for name in ("nvidia", "runc-fp")
    )
    fuse = MAIN_FILES["kind"].replace('"overlayfs"', '"fuse-overlayfs"')
    other_root = f'{unread}\n[plugins."{OVERLAYFS}"]\nroot_path = "/var/volatile"\n'
    assert {is_overlayfs(each) for each in prints(SNAPSHOTTER[1], kind)} == {True}
    for main in (MAIN_FILES["soci"], fuse):
        found = prints(SNAPSHOTTER[1], text(main, drop_in("2")))
        assert False in map(is_overlayfs, found)
    for main in (nvidia, other_runc):
        assert not prints(HANDLER[1], text(main, drop_in("2")))
    for main in (unread, other_root):
        assert not prints(IS_READ[1], text(main, drop_in("2")))
    # The user may not read the file, or there is no such program.
    assert not any(prints(check[1], "") for check in (SNAPSHOTTER, HANDLER, IS_READ))


def is_overlayfs(line: str) -> bool:
    return line.split(" = ")[1][1:-1] == "overlayfs"


@pytest.mark.parametrize(
    ("target", "options", "counts"),
    [
        ("/run/containerd/io.containerd.runtime.v2.task/k8s.io/a/rootfs", "rw,volatile", True),
        (
            "/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/a/rootfs",
            "fsync=volatile",
            True,
        ),
        ("/run/containerd/io.containerd.runtime.v2.task/k8s.io/a/rootfs", "rw,relatime", False),
        ("/run/a/rootfs", "rw,lowerdir=/var/volatile/fs", False),
        ("/var/lib/containerd/io.containerd.grpc.v1.cri/image-volumes/a", "ro,volatile", False),
    ],
)
def test_printed_check_of_mounts_counts_containers_only(
    target: str, options: str, counts: bool
) -> None:
    assert bool(prints(MOUNTED, f"{target} {options}\n")) is counts


# What `--for` prints, in the file of a distribution


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


def document(distribution: str) -> Any:
    return yaml.safe_load(printed(*CONTAINERD, "-o", "dropin", "--for", distribution))


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
            path.write_text(run(line, "--config", path, "config", "migrate"))
        dumps.append(run(line, "--config", path, "config", "dump"))
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
        dumps.append(run(line, "--config", path, "config", "dump"))
    assert all("/example/base-spec.json" in dump for dump in dumps)
    assert_only_volatile_is_added(*map(tomllib.loads, dumps))
