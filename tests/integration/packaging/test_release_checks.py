"""Tests of a release: two runs compared, the base image's digest, the signer's identity."""

from __future__ import annotations

import json
import ssl
from pathlib import Path

import pytest

from release.__main__ import NO_REPOSITORY
from release.__main__ import main as make_release
from release.base import pin_base
from release.compare import digests, main
from release.distributions import remove_machine_files
from release.sboms import Sbom, check_components, check_packages
from release.signatures import workflow_signer
from release.source import Release, ReleaseError, commit_of
from tests.support.image_fixtures import ca, image, registry, trusting
from tests.support.paths import ROOT
from tests.support.registry import Image, RunningRegistry
from webhook import __version__

pytestmark = pytest.mark.lab

__all__ = ["ca", "image", "registry", "trusting"]

RELEASE = Release(
    __version__, "https://repository.example/podsettle", "registry.example", *commit_of(ROOT)
)
TAGS = "registry/docker/registry/v2/repositories/podsettle/_manifests/tags"


def release_of(directory: Path, wheel: str, signature: str, image: str) -> Path:
    files = {
        "podsettle.whl": wheel,
        "SHA256SUMS.sigstore.json": signature,
        f"{TAGS}/0.2.0/current/link": image,
        f"{TAGS}/sha256-12/current/link": signature,
    }
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return directory


@pytest.mark.parametrize(
    ("second", "code", "line"),
    [
        (("wheel", "signature", "image"), 0, "4 files and tags are the same"),
        (("wheel", "other", "image"), 0, "2 files and tags are the same"),
        (("other", "signature", "image"), 1, "podsettle.whl: differs without a known reason"),
        (("wheel", "signature", "other"), 1, "0.2.0/current/link: differs without a known reason"),
    ],
    ids=["nothing", "signatures", "a file", "an image"],
)
def test_second_run_fails_if_anything_but_signatures_differs(
    second: tuple[str, str, str],
    code: int,
    line: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    release_of(tmp_path / "first", "wheel", "signature", "image")
    release_of(tmp_path / "second", *second)
    assert main([str(tmp_path / "first"), str(tmp_path / "second")]) == code
    assert line in capsys.readouterr().out


def test_file_that_only_one_run_has_is_a_difference(tmp_path: Path) -> None:
    release_of(tmp_path / "first", "wheel", "signature", "image")
    release_of(tmp_path / "second", "wheel", "signature", "image")
    (tmp_path / "second/install.yaml").write_text("")
    assert "install.yaml" in digests(tmp_path / "second")
    assert main([str(tmp_path / "first"), str(tmp_path / "second")]) == 1


def test_signature_that_only_one_run_has_is_a_difference(tmp_path: Path) -> None:
    release_of(tmp_path / "first", "wheel", "signature", "image")
    release_of(tmp_path / "second", "wheel", "signature", "image")
    (tmp_path / "second/SHA256SUMS.sigstore.json").unlink()
    assert main([str(tmp_path / "first"), str(tmp_path / "second")]) == 1


@pytest.mark.parametrize("repository", ["", NO_REPOSITORY])
def test_release_that_is_published_names_its_repository(
    repository: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--registry", "registry.example/team", "--repository", repository]
    assert make_release(["--version", "0.0.0", *where]) == 1
    assert "by --repository" in capsys.readouterr().err


def sbom_of(directory: Path, *packages: str) -> Sbom:
    sbom = Sbom.named("client", directory)
    addresses = [f"pkg:pypi/{package}" for package in packages]
    cyclonedx = {"components": [{"name": each, "purl": each} for each in addresses]}
    spdx = {
        "packages": [
            {"name": each, "externalRefs": [{"referenceLocator": each}]} for each in addresses
        ]
    }
    sbom.cyclonedx.write_text(json.dumps(cyclonedx))
    sbom.spdx.write_text(json.dumps(spdx))
    return sbom


def installed(directory: Path, name: str, version: str) -> None:
    folder = directory / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n")


def test_sbom_that_names_each_installed_package_is_accepted(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    installed(packages, "Some_Package", "1.2+local")
    sbom = sbom_of(tmp_path, "some-package@1.2%2Blocal?arch=any", "pip@26.0")
    check_packages(sbom, packages, RELEASE)


def test_sbom_without_an_installed_package_is_refused(tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    installed(packages, "some-package", "1.2")
    installed(packages, "another", "2.0")
    sbom = sbom_of(tmp_path, "some-package@1.2", "another@1.9")
    with pytest.raises(ReleaseError, match=r"does not name: another 2\.0$"):
        check_packages(sbom, packages, RELEASE)


def test_sbom_is_not_compared_with_an_empty_list(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="pip lists no package"):
        check_packages(sbom_of(tmp_path, "some-package@1.2"), tmp_path, RELEASE)


def test_sbom_of_the_helper_names_exactly_what_the_linker_took(tmp_path: Path) -> None:
    sbom = sbom_of(tmp_path, "musl", "zig")
    check_components(sbom, {"pkg:pypi/musl", "pkg:pypi/zig"})
    for names in ({"pkg:pypi/musl"}, {"pkg:pypi/musl", "pkg:pypi/zig", "pkg:pypi/more"}):
        with pytest.raises(ReleaseError, match="names"):
            check_components(sbom, names)


def test_base_image_gets_the_digest_that_its_tag_has_now(
    registry: RunningRegistry, image: Image, trusting: ssl.SSLContext, tmp_path: Path
) -> None:
    digest = registry.push("library/python", "3.13-slim", image)
    name = f"{registry.host}/library/python:3.13-slim"
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text(f"# The base.\nARG PYTHON={name}\n\nFROM ${{PYTHON}}\n")
    assert pin_base(dockerfile, trusting) == f"{name}@{digest}"
    pinned = f"# The base.\nARG PYTHON={name}@{digest}\n\nFROM ${{PYTHON}}\n"
    assert dockerfile.read_text() == pinned
    registry.push("library/python", "3.13-slim", image.as_docker)
    assert pin_base(dockerfile, trusting) == f"{name}@{digest}"
    assert dockerfile.read_text() == pinned


def test_release_stops_if_the_registry_does_not_have_the_base_image(
    registry: RunningRegistry, trusting: ssl.SSLContext, tmp_path: Path
) -> None:
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text(f"ARG PYTHON={registry.host}/library/python:none\n")
    with pytest.raises(ReleaseError, match=r"base image .*library/python:none: "):
        pin_base(dockerfile, trusting)


def test_release_is_verified_against_the_workflow_and_the_tag_that_made_it() -> None:
    release = Release("1.2.3", "https://forge.example/team/podsettle", "registry.example", "", "0")
    (identity, _) = workflow_signer(release).verifying
    address = identity.removeprefix(f"--certificate-identity={release.repository}/")
    path, _, tag = address.partition("@")
    assert tag == "refs/tags/v1.2.3"
    assert (ROOT / path).is_file()


def test_packages_of_an_executable_keep_nothing_of_the_machine(tmp_path: Path) -> None:
    metadata = tmp_path / "app-1.dist-info"
    kept = ("app-1.dist-info/METADATA", "app-1.dist-info/RECORD", "app/cli.py")
    removed = (
        "bin/podsettle",
        f"{metadata.name}/uv_cache.json",
        f"{metadata.name}/direct_url.json",
    )
    for name in (*kept, *removed):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (metadata / "RECORD").write_text("".join(f"{name},sha256=x,1\n" for name in (*kept, *removed)))
    remove_machine_files(tmp_path)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == set(kept)
    listed = [line.split(",")[0] for line in (metadata / "RECORD").read_text().splitlines()]
    assert listed == list(kept)
