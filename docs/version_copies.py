"""The copies of podsettle's version, which stands in pyproject.toml. `make docs` writes them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_TAG = r"(?<=\b{name}:)\d+\.\d+\.\d+(?:[a-z]+\d+)?"
_RELEASE = r"(?<=\bVERSION=)\d+\.\d+\.\d+|(?<=\bv)\d+\.\d+\.\d+|(?<=--version )\d+\.\d+\.\d+"
_IMAGE_TAGS = "|".join(_TAG.format(name=name) for name in ("podsettle", "linger"))
# The paths begin in docs/, as those of all generated files.
COPIES = {
    "../README.md": rf"{_IMAGE_TAGS}|(?<=: podsettle; # )\d+\.\d+\.\d+(?:[a-z]+\d+)?",
    "../CONTRIBUTING.md": r"(?<=\bVERSION=)\d+\.\d+\.\d+",
    "../Makefile": _RELEASE,
    "install.md": _IMAGE_TAGS,
    "openshift.md": _IMAGE_TAGS,
    "releasing.md": _RELEASE,
    "wait-and-logs.md": _IMAGE_TAGS,
    "../charts/podsettle/Chart.yaml": r"(?m)(?<=^version: ).+|(?<=^appVersion: ).+",
    "../webhook/linger/src/linger.h": r'(?<=#define LINGER_VERSION ")[^"]+',
}
"""What is replaced by the version in each file."""


def fill(name: str, text: str) -> str:
    """Return a file of COPIES with the version. The text of another file stays as it is."""
    return re.sub(COPIES[name], _version(), text) if name in COPIES else text


def _version() -> str:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])
