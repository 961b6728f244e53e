"""python -m tests.matrix [--kube 1.33] [PATH ...]: run the end-to-end tests on each release.

It prints the rows of the table in docs/kubernetes-versions.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.junit import read_report
from tests.support.paths import ROOT
from tools.build import CLUSTERS, BuildError, built
from tools.kube_versions import KUBE_VERSION, MODULES, releases

OF_THIS_MACHINE = "tests/e2e/bench"
"""It measures podsettle, and asks an API server for nothing that could differ."""


def main() -> int:
    """Return 1 if a test failed on any release."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=main.__doc__)
    parser.add_argument("--kube", action="append", choices=MODULES, help="can be repeated")
    parser.add_argument("paths", nargs="*", default=["tests/e2e"], metavar="PATH")
    options = parser.parse_args()
    results: list[tuple[str, bool]] = []
    for line in options.kube or list(MODULES):
        print(f"Kubernetes {line}:", flush=True)
        try:
            built(CLUSTERS[line])
        except BuildError as error:
            print(error, file=sys.stderr)
            return 1
        results.append(_run(line, options.paths))
    print("| kube-apiserver | etcd | test modules run | tests passed | failed | since |")
    print("\n".join(row for row, _ in results))
    return 0 if all(passed for _, passed in results) else 1


def _run(line: str, paths: list[str]) -> tuple[str, bool]:
    """Run the tests on one release. Return its row, and whether all have passed."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        flags = ["-n", "2", "--dist", "loadfile", f"--ignore={OF_THIS_MACHINE}"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *flags, f"--junitxml={report}", *paths],
            cwd=ROOT,
            env=os.environ | {KUBE_VERSION: line, "CI": "true"},
            check=False,
        )
        counts = read_report(report).values() if report.exists() else ()
    passed, failed = (sum(count[outcome] for count in counts) for outcome in ("passed", "failed"))
    built = releases(MODULES[line])
    date = datetime.now(UTC).date()
    cells = (built["kubernetes"], built["etcd"], len(counts), passed, failed, date)
    return f"| {' | '.join(map(str, cells))} |", done.returncode == pytest.ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
