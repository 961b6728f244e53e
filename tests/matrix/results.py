"""The outcomes of the end-to-end tests on each release of Kubernetes, by the file of the tests."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from tests.support.junit import Counts
from tests.support.paths import DOCS, ROOT
from tools.kube_versions import MODULES, releases

FILE = DOCS / "kubernetes-versions.json"


class Results:
    """What docs/kubernetes-versions.json holds."""

    def __init__(self, lines: dict[str, dict[str, Any]]) -> None:
        self.lines = lines
        """By release line, such as `1.33`."""

    @classmethod
    def load(cls) -> Results:
        """Read the file. One that does not exist has no results."""
        return cls(json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {})

    def record(self, line: str, counts: Counts, commit: str) -> None:
        """Put the counts of a run in place of earlier ones of the same files.

        Each file has the date and podsettle's commit of its run. Counts of another patch
        release do not stay, nor do those of files that do not exist any more.
        """
        built = releases(MODULES[line])
        before = self.lines.get(line, {})
        files = before.get("files", {}) if built.items() <= before.items() else {}
        run = {"date": datetime.now(UTC).date().isoformat(), "commit": commit}
        files |= {file: count | run for file, count in counts.items()}
        kept = {file: files[file] for file in sorted(files) if (ROOT / file).exists()}
        self.lines[line] = built | {"files": kept}

    def save(self) -> None:
        """Write the file, the oldest release first. A release without a run has no files."""
        ordered = {
            line: self.lines.get(line, releases(module) | {"files": {}})
            for line, module in MODULES.items()
        }
        FILE.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
