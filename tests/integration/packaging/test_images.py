"""Tests of both images, built by buildah from the Dockerfile in a company's network.

The base image is the company's own and has a user that is not root. The only way out is a proxy
that reads TLS. Packages come from an index with a password. No more files can be open than in
buildah's chroot isolation and Tekton's buildah task.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tests.support.company_network import INDEX_HOST, PASSWORD, Company, company
from tests.support.paths import ROOT
from tests.support.wheels import downloaded_wheels
from tools.base_image import PATH, write_root_fs
from tools.buildah import Buildah
from tools.pythons import dockerfile_python
from webhook import __version__

pytestmark = pytest.mark.needs("buildah", "busybox", "root")

BASE = "localhost/company-python"
OPEN_FILES = 1000
REQUIREMENTS = ("run", "build", "linger")


@dataclass(frozen=True)
class Image:
    """A built image, and a container of it."""

    buildah: Buildah
    container: str
    files: Path
    description: Mapping[str, Any]

    @property
    def config(self) -> Mapping[str, Any]:
        return dict(self.description["OCIv1"]["config"])

    def run(self, *command: str, volumes: Sequence[str] = ()) -> str:
        """Run a command in the container as the image's user, and return its output."""
        mounts = [f"--volume={volume}" for volume in volumes]
        return self.buildah("run", "--isolation=chroot", *mounts, self.container, "--", *command)


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Buildah:
    return Buildah(tmp_path_factory.mktemp("storage"))


@pytest.fixture(scope="module")
def python() -> Path:
    """The image's Python where this machine has it, else the one that runs the tests."""
    return dockerfile_python() or Path(sys.executable)


@pytest.fixture(scope="module")
def network(python: Path) -> Iterator[Company]:
    with company(downloaded_wheels(python, REQUIREMENTS)) as started:
        yield started


@pytest.fixture(scope="module")
def secrets(network: Company, tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    directory = tmp_path_factory.mktemp("secrets")
    (directory / "pip.conf").write_text(network.pip_conf)
    network.ca.cert_pem.write_to_path(directory / "ca.crt")
    return [f"--secret=id={name},src={directory / name}" for name in ("pip.conf", "ca.crt")]


@pytest.fixture(scope="module")
def base(buildah: Buildah, python: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The company's base image: Python in /opt, a user that is not root, its own entrypoint."""
    root = tmp_path_factory.mktemp("base")
    write_root_fs(root, python)
    return buildah.image_of_files(
        *(BASE, root, "--env", f"PATH={PATH}", "--user", "1001"),
        *("--entrypoint", '["/company-entrypoint"]', "--cmd", "sh"),
    )


def build(
    target: str,
    buildah: Buildah,
    base: str,
    network: Company,
    secrets: Sequence[str],
    choice: str,
) -> Image:
    """Build an image, which an option of buildah chooses."""
    buildah(
        *("build", "--isolation=chroot", "--pull-never", "--http-proxy=false", "--no-cache"),
        *(choice, "--tag", f"localhost/{target}", *secrets),
        *("--build-arg", f"PYTHON={base}", "--build-arg", f"HTTPS_PROXY={network.proxy}"),
        *(f"--ulimit=nofile={OPEN_FILES}:{OPEN_FILES}", ROOT),
    )
    container = buildah("from", "--pull-never", f"localhost/{target}")
    files = Path(buildah("mount", container))
    description = json.loads(buildah("inspect", "--type", "image", f"localhost/{target}"))
    return Image(buildah, container, files, description)


@pytest.fixture(scope="module")
def linger(buildah: Buildah, base: str, network: Company, secrets: Sequence[str]) -> Image:
    # As builders without `--target` do, such as OpenShift's.
    return build("linger", buildah, base, network, secrets, "--build-arg=IMAGE=linger")


@pytest.fixture(scope="module")
def podsettle(buildah: Buildah, base: str, network: Company, secrets: Sequence[str]) -> Image:
    return build("podsettle", buildah, base, network, secrets, "--target=podsettle")


def test_helper_image_holds_only_the_helper_and_runs_it(linger: Image) -> None:
    assert linger.run("/linger", "--version") == f"linger {__version__}"
    files = sorted(str(path.relative_to(linger.files)) for path in linger.files.rglob("*"))
    notices = ["licenses", "licenses/LICENSE", "licenses/THIRD_PARTY_NOTICES"]
    assert [name for name in files if name.split("/")[0] in ("licenses", "linger")] == [
        *notices,
        "linger",
    ]
    assert linger.config["User"] == "65532:65532"
    assert linger.config["Entrypoint"] == ["/linger"]


def test_podsettle_runs_as_its_own_user(podsettle: Image) -> None:
    assert podsettle.config["User"] == "65532:65532"
    assert podsettle.config["Entrypoint"] == ["/opt/podsettle/bin/podsettle"]
    assert podsettle.config["Cmd"] == ["serve"]
    preview = podsettle.run(
        *("/opt/podsettle/bin/podsettle", "preview", "--manifests", "/examples"),
        "/examples/pods/tekton-taskrun.yaml",
        volumes=[f"{ROOT / 'examples'}:/examples:ro"],
    )
    assert "Applied postInitSleep prepare" in preview


@pytest.mark.parametrize("target", ["linger", "podsettle"])
def test_images_hold_the_licence_and_no_build_secret(
    target: str, network: Company, request: pytest.FixtureRequest
) -> None:
    image = request.getfixturevalue(target)
    for name in ("LICENSE", "THIRD_PARTY_NOTICES"):
        assert (image.files / "licenses" / name).read_bytes() == (ROOT / name).read_bytes()
    assert "Apache-2.0" in image.config["Labels"]["org.opencontainers.image.licenses"]
    ca = network.ca.cert_pem.bytes().split(b"\n")[1]
    known = json.dumps(image.description)
    assert PASSWORD not in known
    for file in image.files.rglob("*"):
        if file.is_file() and not file.is_symlink():
            content = file.read_bytes()
            assert PASSWORD.encode() not in content, file
            assert ca not in content, file
    assert not list((image.files / "run").glob("secrets/*"))


def test_each_package_in_the_image_names_its_licence(podsettle: Image) -> None:
    packages = list(podsettle.files.glob("opt/podsettle/lib/python*/site-packages/*.dist-info"))
    assert len(packages) > 20
    for package in packages:
        metadata = (package / "METADATA").read_text(encoding="utf-8")
        named = ("License-Expression: ", "License: ", "Classifier: License :: ")
        assert any(line.startswith(named) for line in metadata.splitlines()), package.name


def test_kubernetes_package_is_whole_except_for_its_tests(podsettle: Image) -> None:
    (record,) = podsettle.files.glob("opt/podsettle/lib/*/site-packages/kubernetes-*/RECORD")
    installed = record.parents[1]
    missing = [
        name
        for name in (line.split(",")[0] for line in record.read_text().splitlines())
        if not (installed / name).is_file()
    ]
    assert len(list(installed.glob("kubernetes/**/*.py"))) > 1_000
    assert [name for name in missing if "test" not in PurePosixPath(name).name] == []
    assert not list(installed.glob("kubernetes/**/*test*"))


def test_start_compiles_no_module_of_a_package_or_of_the_standard_library(podsettle: Image) -> None:
    modules = "webhook.cli, webhook.cluster.replica, webhook.server.app, webhook.server.run"
    loaded = podsettle.run(
        *("/bin/sh", "-c", f"/opt/podsettle/bin/python -v -c 'import {modules}' 2>&1")
    )
    from_cache = re.findall(r"^# code object from '(.+\.pyc)'", loaded, re.MULTILINE)
    assert len(from_cache) > 500
    compiled = re.findall(r"^# code object from (\S+\.py)$", loaded, re.MULTILINE)
    # Two lines, which put another module in their place. So sys.modules does not name this file.
    assert [file for file in compiled if not file.endswith("/collections/abc.py")] == []


def test_byte_code_of_kubernetes_is_that_of_a_few_modules(podsettle: Image) -> None:
    compiled = list(podsettle.files.glob("opt/podsettle/byte-code/**/kubernetes/**/*.pyc"))
    assert 0 < len(compiled) < 150
    assert not list(podsettle.files.glob("opt/podsettle/lib/**/*.pyc"))


@pytest.mark.usefixtures("linger", "podsettle")
def test_all_downloads_came_from_the_index_through_the_proxy(network: Company) -> None:
    assert set(network.connected) == {f"{INDEX_HOST}:443"}
    projects = {name.split("-")[0] for name in network.downloaded}
    assert {"ziglang", "hatchling", "kubernetes", "uvicorn"} <= projects
