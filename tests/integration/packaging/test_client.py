"""Tests of the wheel in an environment without the packages of the server."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.paths import EXAMPLES, ROOT
from tests.support.process import run as run_program
from tests.support.wheels import downloaded_wheels
from webhook.cli import main
from webhook.cli.server_extra import SERVER_COMMANDS, SERVER_PACKAGES

pytestmark = pytest.mark.slow

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRA = [Requirement(text) for text in PROJECT["optional-dependencies"]["server"]]
CLIENT_COMMANDS = sorted(set(main.list_commands(click.Context(main))) - SERVER_COMMANDS)


@pytest.fixture(scope="module")
def environment(distributions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment in which pip installed the wheel without an extra."""
    directory = tmp_path_factory.mktemp("client")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", directory], check=True)
    wheels = downloaded_wheels(Path(sys.executable), ["client"])
    wheel = next(distributions.glob("*.whl"))
    install = ["install", "--quiet", "--no-compile", "--no-index", "--find-links", str(wheels)]
    subprocess.run([*pip_of(directory / "bin"), *install, wheel], check=True)
    return directory / "bin"


def pip_of(environment: Path) -> list[str | Path]:
    """Return the pip of the tests for another environment: to install one there takes seconds."""
    return [sys.executable, "-m", "pip", "--python", environment / "python"]


def run(environment: Path, *command: str) -> subprocess.CompletedProcess[str]:
    program, *arguments = command
    return run_program(environment / program, *arguments)


def test_install_without_an_extra_has_no_package_of_the_server(environment: Path) -> None:
    listed = subprocess.check_output([*pip_of(environment), "list", "--format", "json"])
    installed = {canonicalize_name(each["name"]) for each in json.loads(listed)}
    assert "podsettle" in installed
    assert installed.isdisjoint(canonicalize_name(each.name) for each in EXTRA)


@pytest.mark.parametrize("command", CLIENT_COMMANDS)
def test_client_command_answers_without_the_packages_of_the_server(
    command: str, environment: Path
) -> None:
    done = run(environment, "kubectl-settle", command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert command in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (("scan", "--manifests", str(EXAMPLES / "scan")), 1, "cri-o-9840"),
        (("check", str(EXAMPLES / "policies.yaml")), 0, "policies are fine"),
        (
            ("preview", "--manifests", str(EXAMPLES), str(EXAMPLES / "pods/tekton-taskrun.yaml")),
            0,
            "Applied postInitSleep prepare",
        ),
    ],
    ids=["scan", "check", "preview"],
)
def test_client_command_works_without_the_packages_of_the_server(
    arguments: tuple[str, ...], code: int, line: str, environment: Path
) -> None:
    done = run(environment, "podsettle", *arguments)
    assert done.returncode == code, done.stderr
    assert line in done.stdout + done.stderr


@pytest.mark.parametrize("arguments", [(), ("--help",), ("--certs-dir", "certs")], ids=str)
@pytest.mark.parametrize("command", sorted(SERVER_COMMANDS))
def test_server_command_without_its_packages_names_the_extra(
    command: str, arguments: tuple[str, ...], environment: Path
) -> None:
    done = run(environment, "podsettle", command, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"podsettle: {command}: not installed: cryptography, fastapi")
    assert "its extra 'server'" in done.stderr


def test_completion_of_a_server_command_without_its_packages_is_empty(environment: Path) -> None:
    words = {"COMP_WORDS": "podsettle serve --", "COMP_CWORD": "2"}
    done = run_program(
        environment / "podsettle", env={**words, "_PODSETTLE_COMPLETE": "bash_complete"}
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


def test_packages_that_a_server_command_looks_for_are_those_of_the_extra() -> None:
    everywhere = [each.name for each in EXTRA if each.marker is None]
    assert [name.replace("-", "_") for name in everywhere] == list(SERVER_PACKAGES)
