"""Tests of the parts of a release that need neither a registry nor downloads."""

from __future__ import annotations

import hashlib
import json
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from release.__main__ import NO_REPOSITORY
from release.__main__ import main as make_release
from release.chart import NAMESPACE, package_chart, write_manifests
from release.client import remove_machine_files, write_krew_plugin
from release.images import write_helper_sbom
from release.source import Release, ReleaseError, commit_of, release_notes, write_source
from tests.support.helm import run
from tests.support.paths import CHART, CRD, ROOT
from tests.support.process import run as run_program
from tools.build import programs
from webhook import __version__

pytestmark = pytest.mark.lab

REPOSITORY = "https://repository.example/podsettle"
REGISTRY = "registry.example/team"
RELEASE = Release(__version__, REPOSITORY, REGISTRY, *commit_of(ROOT))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("release") / "source"
    write_source(ROOT, RELEASE, directory)
    return directory


@pytest.fixture(scope="module")
def package(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return package_chart(source, RELEASE, tmp_path_factory.mktemp("chart"))


def documents(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if document]


def identities(objects: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return sorted((each["kind"], each["metadata"]["name"]) for each in objects)


def test_release_of_another_version_than_that_of_the_commit_is_refused(tmp_path: Path) -> None:
    other = Release("99.0.0", REPOSITORY, REGISTRY, RELEASE.commit, RELEASE.epoch)
    with pytest.raises(ReleaseError, match=r"pyproject.toml has version"):
        write_source(ROOT, other, tmp_path)


@pytest.mark.parametrize("repository", ["", NO_REPOSITORY])
def test_release_that_is_published_names_its_repository(
    repository: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--registry", REGISTRY, "--repository", repository]
    assert make_release(["--version", "0.0.0", *where]) == 1
    assert "by --repository" in capsys.readouterr().err


def test_metadata_of_the_package_has_the_address_that_only_the_release_knows(source: Path) -> None:
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    assert project["urls"]["Repository"] == REPOSITORY
    assert project["scripts"]
    assert "urls" not in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_packaged_chart_installs_without_values(package: Path) -> None:
    rendered = run("helm", "template", "podsettle", package, "--namespace", NAMESPACE)
    assert rendered.returncode == 0, rendered.stderr
    (deployment,) = (d for d in documents(rendered.stdout) if d["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    images = [f"{REGISTRY}/{name}:{__version__}" for name in ("podsettle", "linger")]
    assert container["image"] == images[0]
    assert images[1] in yaml.safe_dump(container)
    shown = yaml.safe_load(run("helm", "show", "chart", package).stdout)
    assert shown["home"] == REPOSITORY
    named = yaml.safe_load(shown["annotations"]["artifacthub.io/images"])
    assert [each["image"] for each in named] == images


def test_chart_describes_its_crd() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    (named,) = yaml.safe_load(chart["annotations"]["artifacthub.io/crds"])
    crd = yaml.safe_load(CRD.read_text())
    (version,) = crd["spec"]["versions"]
    assert (named["kind"], named["name"]) == (crd["spec"]["names"]["kind"], crd["metadata"]["name"])
    assert named["version"] == version["name"]
    assert named["description"] == version["schema"]["openAPIV3Schema"]["description"]


def test_chart_is_packaged_to_the_same_bytes_twice(
    source: Path, package: Path, tmp_path: Path
) -> None:
    assert package_chart(source, RELEASE, tmp_path).read_bytes() == package.read_bytes()


def test_manifest_and_kustomization_have_the_objects_of_the_chart(
    package: Path, tmp_path: Path
) -> None:
    write_manifests(package, RELEASE, tmp_path)
    installed = documents((tmp_path / "install.yaml").read_text())
    assert [each["kind"] for each in installed[:2]] == ["Namespace", "CustomResourceDefinition"]
    rendered = run("helm", "template", "podsettle", package, "--namespace", NAMESPACE)
    assert identities(installed[2:]) == identities(documents(rendered.stdout))
    kubectl = programs().kubectl
    assert kubectl
    built = run_program(kubectl, "kustomize", tmp_path, check=True)
    assert identities(documents(built.stdout)) == identities(installed)


def test_plugin_manifest_names_each_archive_and_its_digest(source: Path, tmp_path: Path) -> None:
    executable = tmp_path / "podsettle.pyz"
    executable.write_bytes(b"#!/bin/sh\n")
    platforms = ("linux-amd64", "darwin-arm64", "windows-amd64")
    for run_ in ("first", "second"):
        (tmp_path / run_ / "scratch").mkdir(parents=True)
        files = (tmp_path / run_, tmp_path / run_ / "scratch")
        write_krew_plugin(dict.fromkeys(platforms, executable), source, RELEASE, *files)
    manifest = (tmp_path / "first/settle.yaml").read_text()
    assert manifest == (tmp_path / "second/settle.yaml").read_text()
    named = yaml.safe_load(manifest)["spec"]["platforms"]
    assert [each["selector"]["matchLabels"]["os"] for each in named] == ["linux", "darwin"]
    for each in named:
        name = each["uri"].removeprefix(f"{REPOSITORY}/releases/download/v{__version__}/")
        archive = tmp_path / "first" / name
        assert hashlib.sha256(archive.read_bytes()).hexdigest() == each["sha256"]
        with tarfile.open(archive) as opened:
            assert opened.getmember(each["bin"]).mode & 0o111
            assert opened.getnames() == [each["bin"], "LICENSE"]


def test_sbom_of_the_helper_names_what_it_is_linked_with(tmp_path: Path) -> None:
    write_helper_sbom(RELEASE, tmp_path)
    (file,) = tmp_path.iterdir()
    components = json.loads(file.read_text())["components"]
    assert [each["name"] for each in components] == ["podsettle", "musl", "zig"]
    assert all(each["version"][0].isdigit() for each in components)


def test_packages_of_an_executable_keep_nothing_of_the_machine(tmp_path: Path) -> None:
    metadata = tmp_path / "app-1.dist-info"
    kept = ("app-1.dist-info/METADATA", "app-1.dist-info/RECORD", "app/cli.py")
    removed = ("bin/podsettle", "app-1.dist-info/uv_cache.json", "app-1.dist-info/direct_url.json")
    for name in (*kept, *removed):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (metadata / "RECORD").write_text("".join(f"{name},sha256=x,1\n" for name in (*kept, *removed)))
    remove_machine_files(tmp_path)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == set(kept)
    listed = [line.split(",")[0] for line in (metadata / "RECORD").read_text().splitlines()]
    assert listed == list(kept)


@pytest.mark.parametrize(
    ("changelog", "notes"),
    [
        ("# Changelog\n\n## Unreleased\n\n- New.\n", "- New."),
        (
            "## Unreleased\n\n## 1.2.0 - 2026-01-01\n\n- It.\n\n## 1.1.0 - 2025-01-01\n\n- Old.\n",
            "- It.",
        ),
        ("## Unreleased\n\n- Next.\n\n## 1.2.0 - 2026-01-01\n\n- It.\n", "- It."),
    ],
    ids=["unreleased", "between others", "the last"],
)
def test_notes_of_a_release_are_its_section_of_the_changelog(changelog: str, notes: str) -> None:
    assert release_notes(changelog, "1.2.0") == notes


def test_release_without_a_section_in_the_changelog_is_refused() -> None:
    with pytest.raises(ReleaseError, match="neither a section"):
        release_notes("# Changelog\n\n## Unreleased\n\n## 1.1.0 - 2025-01-01\n\n- Old.\n", "1.2.0")
