"""Runs of helm on the chart."""

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

from tests.support.paths import CHART, DATA
from tools.build import tool

Json: TypeAlias = dict[str, Any]

# Files with values. Each covers another part of the chart.
VALUES = {path.stem: path for path in sorted((DATA / "values").glob("*.yaml"))}
# The required values, which have no default.
IMAGES = DATA / "chart_images.yaml"
# CRDs of other projects, for custom resources in the chart.
CRDS = {path.stem: path for path in sorted((DATA / "crds").glob("*.yaml"))}
NAMESPACE = "podsettle-system"

_TIMEOUT_SECONDS = 240.0


def run(
    program: str, *arguments: str | Path, input: str | None = None, kubeconfig: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `helm` without the user's configuration."""
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
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )


def template(*arguments: str | Path, release: str = "podsettle") -> str:
    """Return the output of `helm template` with the values in IMAGES and with `arguments`."""
    flags = ("--namespace", NAMESPACE, "--values", IMAGES, *arguments)
    done = run("helm", "template", release, CHART, *flags)
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def _rendered(values: str) -> str:
    return template("--values", VALUES[values])


def objects(values: str = "default") -> list[Json]:
    """Return the rendered objects for one of VALUES."""
    return [document for document in yaml.safe_load_all(_rendered(values)) if document]


def rendered(values: Mapping[str, object] | None = None, *flags: str | Path) -> list[Json]:
    """Return the rendered objects with each value set by its path."""
    made = yaml.safe_load_all(template(*set_flags(values or {}), *flags))
    return [document for document in made if document]


def only(kind: str, made: list[Json]) -> Json:
    """Return the only object of a kind."""
    (found,) = (each for each in made if each["kind"] == kind)
    return found


def named(kind: str, name: str, values: str = "default") -> Json:
    """Return the rendered object with a kind and a name."""
    (found,) = [
        each
        for each in objects(values)
        if each["kind"] == kind and each["metadata"]["name"] == name
    ]
    return found


def set_flags(values: Mapping[str, object]) -> list[str]:
    """Return flags that set each value by its path."""
    return [f"--set-json={path}={json.dumps(value)}" for path, value in values.items()]


def container_of(pod: Json) -> Json:
    (container,) = pod["spec"]["containers"]
    found: Json = container
    return found


def arguments_of(pod: Json) -> dict[str, str]:
    command, *flags = container_of(pod)["args"]
    assert command == "serve"
    # A flag without a value, such as `--events`, has an empty one here.
    return {name: value for name, _, value in (flag.partition("=") for flag in flags)}
