"""The command as a whole."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.process import PODSETTLE, podsettle
from webhook import __version__


def test_version() -> None:
    assert podsettle("--version").stdout == f"podsettle, version {__version__}\n"


@pytest.mark.parametrize("command", ["serve", "preview", "check", "wait", "logs", "certs"])
def test_every_command_has_help_that_fits(command: str) -> None:
    done = podsettle(command, "--help")
    assert done.returncode == 0
    assert command in podsettle("--help").stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_kubectl_finds_it_as_a_plugin() -> None:
    plugin = Path(PODSETTLE).with_name("kubectl-settle")
    done = subprocess.run([plugin, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"podsettle, version {__version__}\n"


def test_bad_usage_is_exit_code_2() -> None:
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
def test_a_back_off_that_cannot_be_is_bad_usage(option: str, value: str) -> None:
    """Of `wait`, any other exit code may be the container's."""
    done = podsettle("wait", "pod", option, value)
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"Error: Invalid value for '{option}'" in done.stderr
