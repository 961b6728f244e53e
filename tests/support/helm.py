"""helm and kubeconform on the chart, as a person runs them."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from tests.support.kube.build import tool
from tests.support.paths import CHART, DATA

Json: TypeAlias = dict[str, Any]

VALUES = {path.stem: path for path in sorted((DATA / "values").glob("*.yaml"))}
"""Values that each show another side of the chart."""
IMAGES = DATA / "chart_images.yaml"
"""The values without which there is no release."""
CRDS = {path.stem: path for path in sorted((DATA / "crds").glob("*.yaml"))}
"""CRDs of others that the chart has objects of."""
NAMESPACE = "podsettle-system"

_PATIENCE = 120.0


def run(
    program: str, *arguments: str | Path, input: str | None = None, kubeconfig: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `helm` or `kubeconform` to its end, with nothing of its user's own configuration."""
    with tempfile.TemporaryDirectory(prefix="podsettle-helm-") as home:
        return subprocess.run(
            [str(tool(program)), *map(str, arguments)],
            input=input,
            env={
                **{key: value for key, value in os.environ.items() if not key.startswith("HELM_")},
                "HOME": home,
                "KUBECONFIG": str(kubeconfig or Path(home) / "none"),
            },
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )


def template(*arguments: str | Path, release: str = "podsettle") -> str:
    """What `helm template` prints, for IMAGES and whatever the arguments say."""
    flags = ("--namespace", NAMESPACE, "--values", IMAGES, *arguments)
    done = run("helm", "template", release, CHART, *flags)
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def _rendered(values: str) -> str:
    return template("--values", VALUES[values])


def objects(values: str = "default") -> list[Json]:
    """The objects that the chart makes of one of VALUES."""
    return [document for document in yaml.safe_load_all(_rendered(values)) if document]


def named(kind: str, name: str, values: str = "default") -> Json:
    """The object of a kind and name."""
    (found,) = [
        each
        for each in objects(values)
        if each["kind"] == kind and each["metadata"]["name"] == name
    ]
    return found


def set_flags(values: Mapping[str, object]) -> list[str]:
    """Values by their paths, as flags."""
    return [f"--set-json={path}={json.dumps(value)}" for path, value in values.items()]
