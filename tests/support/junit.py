"""The counts in reports that pytest writes with `--junitxml`.

`python -m tests.support.junit DIRECTORY` prints the total of all reports in a directory as the last
line of a run that starts pytest several times.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

Counts = dict[str, dict[str, int]]
"""The numbers of `passed` and `failed` tests, by the file of the tests."""
_NOT_PASSED = {"error", "failure", "skipped"}


def read_report(report: Path) -> Counts:
    """Count the tests of each file. A skipped test counts as failed, because it shows nothing."""
    counts: dict[str, Counter[str]] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        file = case.attrib["classname"].replace(".", "/") + ".py"
        passed = _NOT_PASSED.isdisjoint(child.tag for child in case)
        counts.setdefault(file, Counter())["passed" if passed else "failed"] += 1
    return {file: {key: each[key] for key in ("passed", "failed")} for file, each in counts.items()}


def main(directory: Path) -> int:
    """Print the total, and return 1 if a test failed or no test ran."""
    reports = [read_report(path) for path in directory.glob("*.xml")]
    files = [file for report in reports for file in report.values()]
    passed, failed = (sum(file[key] for file in files) for key in ("passed", "failed"))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
