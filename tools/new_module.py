"""The maker of the Go module of one release: `python -m tools.new_module 1.33.4`.

A module that has more programs than the API server, see build.py, keeps them. Not every patch
release has all its staging modules on the Go module proxy. If one is missing, take another.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from typing import Any

from tools.build import CLUSTER, SETS
from tools.kube_versions import GO_MODULES

TEMPLATE = """\
// The programs of Kubernetes {line} that the tests run against, built from source: see build.py.
module podsettle.dev/tests/kube/v{line}

go 1.24.0

// The settings with which the release was made: a later Go has other defaults.
godebug default=go{go}

tool (
{tools}
)

require k8s.io/kubernetes v{release}

// Kubernetes' go.mod points its staging modules into its own tree; these are {modules}.
replace (
{replacements}
)
"""


def main() -> int:
    """Write go.mod and go.sum."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("release", help="such as 1.33.4")
    release: str = parser.parse_args().release
    line, _, patch = release.rpartition(".")
    staging = f"v0.{line.partition('.')[2]}.{patch}"
    module = GO_MODULES / "kube" / f"v{line}"
    module.mkdir(parents=True, exist_ok=True)
    programs = {*CLUSTER.programs.values()}
    programs.update(*(each.programs.values() for each in SETS.values() if each.module == module))
    kubernetes = _go_mod(f"k8s.io/kubernetes@v{release}")
    names = [each["Old"]["Path"] for each in kubernetes["Replace"]]
    settings = {each["Key"]: each["Value"] for each in kubernetes.get("Godebug") or ()}
    default = settings.get("default", kubernetes["Go"]).removeprefix("go")
    text = TEMPLATE.format(
        line=line,
        release=release,
        go=".".join(default.split(".")[:2]),
        modules="the same modules as published",
        tools="\n".join(sorted(f"\t{each.module}{each.package}" for each in programs)),
        replacements="\n".join(f"\t{name} => {name} {staging}" for name in names),
    )
    (module / "go.mod").write_text(text, encoding="utf-8")
    (module / "go.sum").unlink(missing_ok=True)
    tidy = ["go", "mod", "tidy"]
    return subprocess.run(tidy, cwd=module, env=_ENVIRONMENT, check=False).returncode


_ENVIRONMENT = os.environ | {"GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": "-mod=mod"}


def _go_mod(version: str) -> dict[str, Any]:
    """Return the decoded go.mod of a published module."""

    def run(*command: str) -> dict[str, Any]:
        done = subprocess.run(
            ["go", "mod", *command], cwd="/", env=_ENVIRONMENT, stdout=subprocess.PIPE, check=True
        )
        decoded: dict[str, Any] = json.loads(done.stdout)
        return decoded

    return run("edit", "-json", run("download", "-json", version)["GoMod"])


if __name__ == "__main__":
    sys.exit(main())
