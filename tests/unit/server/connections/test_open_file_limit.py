"""The limit on open files."""

from __future__ import annotations

import subprocess
import sys

import pytest

_CODE = """
import logging, resource, sys
from webhook.server.limits import Limits
from webhook.server.run import raise_open_file_limit
logging.basicConfig(format="%(message)s", stream=sys.stdout)
soft, hard, count = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
none = dict.fromkeys(("max_web_connections", "max_handshakes", "max_web_handshakes"), 0)
raise_open_file_limit(Limits(max_connections=count, **none))
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("soft", "limits"), [(512, "1256 2048"), (1256, "1256 2048"), (1800, "1800 2048")]
)
def test_soft_limit_is_raised_if_it_is_too_low(soft: int, limits: str) -> None:
    assert _run(soft, 2048, 1000) == [limits]


def test_hard_limit_that_is_too_low_is_a_warning() -> None:
    warning, limits = _run(512, 1255, 1000)
    assert limits == "1255 1255"
    assert warning.startswith("open files: the hard limit of 1255 is too low for many clients")
    assert "raise it to 1256" in warning


def _run(*arguments: int) -> list[str]:
    command = [sys.executable, "-c", _CODE, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
