"""axe-core, which finds barriers for people with disabilities in a page (https://github.com/dequelabs/axe-core)."""

from __future__ import annotations

from functools import cache
from importlib.metadata import distribution
from pathlib import Path

from tests.support.chromium import Chromium

_GRAVE = ("serious", "critical")


@cache
def _script() -> str:
    # The package is installed without its dependencies, so it cannot be imported.
    package = distribution("axe-playwright-python")
    file = Path(str(package.locate_file("axe_playwright_python/axe.min.js")))
    return file.read_text(encoding="utf-8")


def grave_findings(page: Chromium) -> list[str]:
    """Return what axe-core finds that is serious or critical, with the elements concerned."""
    # The page's Content-Security-Policy refuses a script element, but not the DevTools protocol.
    page.devtools("Runtime.evaluate", expression=_script())
    findings = page.run("return axe.run(document).then((result) => result.violations)")
    return [
        f"{finding['id']} ({finding['impact']}): {finding['help']}: {node['html']}"
        for finding in findings
        if finding["impact"] in _GRAVE
        for node in finding["nodes"]
    ]
