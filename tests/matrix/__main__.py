"""python -m tests.matrix [--kube 1.33] [PATH ...]: run the end-to-end tests on each release.

Each run writes its counts into docs/kubernetes-versions.json, from which `make docs` writes tables.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bench.environment import checked_out_commit
from tests.matrix.results import FILE, Results
from tests.support.junit import read_report
from tests.support.paths import ROOT
from tools.build import BuildError, built_for
from tools.kube_versions import KUBE_VERSION, MODULES

E2E = "tests/e2e"
OF_THIS_MACHINE = "tests/e2e/bench"
"""It measures podsettle, and asks an API server for nothing that could differ."""


def main() -> int:
    """Return 1 if a test failed on any release."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=main.__doc__)
    parser.add_argument("--kube", action="append", choices=MODULES, help="can be repeated")
    parser.add_argument("paths", nargs="*", default=[E2E], metavar="PATH")
    options = parser.parse_args()
    if parts := [path for path in options.paths if "::" in path]:
        # The results would say that the file has run.
        parser.error(f"{parts[0]}: give whole files or directories, and run single tests by pytest")
    failed = []
    for line in options.kube or list(MODULES):
        print(f"Kubernetes {line}:", flush=True)
        try:
            built_for(line)
        except BuildError as error:
            print(error, file=sys.stderr)
            return 1
        if not _run(line, options.paths):
            failed.append(line)
    print(f"failed on {', '.join(failed)}" if failed else "no test failed")
    return 1 if failed else 0


def _run(line: str, paths: list[str]) -> bool:
    """Run the tests on one release, record their outcomes, and return whether all passed."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        flags = ["-n", "2", "--dist", "loadfile", f"--ignore={OF_THIS_MACHINE}"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *flags, f"--junitxml={report}", *paths],
            cwd=ROOT,
            env=os.environ | {KUBE_VERSION: line, "CI": "true"},
            check=False,
        )
        if done.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            print(f"matrix: pytest ended with {done.returncode}: nothing is recorded of {line}")
            return False
        counts = read_report(report)
    results = Results.load()
    # The file of results changes with each release that has run.
    commit = checked_out_commit(".", f":!{FILE.relative_to(ROOT)}")
    results.record(line, counts, commit)
    results.save()
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
