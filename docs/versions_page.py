"""The table of tested Kubernetes releases, from what `make matrix` recorded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

RESULTS = Path(__file__).with_name("kubernetes-versions.json")
_REGION = re.compile(r"(<!-- tested versions -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def fill_regions(text: str) -> str:
    """Return a written page with the table in its region."""
    return _REGION.sub(lambda found: found[1] + "\n".join(_lines()) + "\n" + found[3], text)


def _lines() -> Iterator[str]:
    tests = RESULTS.parents[1] / "tests" / "e2e"
    # `make matrix` leaves out the tests of the benchmark.
    modules = {*tests.rglob("test_*.py")} - {*tests.glob("bench/*")}
    yield "| kube-apiserver | etcd | test modules run | tests passed | failed | since |"
    yield "|---|---|---|---|---|---|"
    for run in json.loads(RESULTS.read_text(encoding="utf-8")).values():
        files = run["files"].values()
        passed, failed = (sum(file[outcome] for file in files) for outcome in ("passed", "failed"))
        counts = (f"{passed:,}", f"{failed:,}") if files else ("–", "–")
        part = f"{len(files)} of {len(modules)}"
        since = min((file["date"] for file in files), default="–")
        columns = (run["kubernetes"], run["etcd"], part, *counts, since)
        yield f"| {' | '.join(columns)} |"
