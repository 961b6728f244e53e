"""Tests of the options and exit codes that all commands share."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.process import PODSETTLE, podsettle
from webhook import __version__


def test_version_option_prints_the_version_of_the_package() -> None:
    assert podsettle("--version").stdout == f"podsettle, version {__version__}\n"


@pytest.mark.parametrize("command", ["serve", "preview", "check", "wait", "logs", "certs"])
def test_help_of_every_command_fits_into_100_columns(command: str) -> None:
    done = podsettle(command, "--help")
    assert done.returncode == 0
    assert command in podsettle("--help").stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_kubectl_plugin_prints_the_version() -> None:
    plugin = Path(PODSETTLE).with_name("kubectl-settle")
    done = subprocess.run([plugin, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"podsettle, version {__version__}\n"


def test_unknown_option_exits_with_2() -> None:
    done = podsettle("preview", "--no-such-option")
    assert done.returncode == 2
    assert "--no-such-option" in done.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--backoff-total", "99999999999h"),
        ("--backoff-first", "99999999999h"),
        ("--backoff-jitter", "nan"),
        ("--backoff-factor", "nan"),
        ("--backoff-factor", "inf"),
    ],
)
def test_invalid_back_off_option_exits_with_2(option: str, value: str) -> None:
    """Any other exit code of `wait` may be that of the container."""
    done = podsettle("wait", "pod", option, value)
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"Error: Invalid value for '{option}'" in done.stderr
