"""The pages that show the committed results: `python -m race.pages` writes them again.

The catalogue of defects has the results, too. `make docs` writes what follows from it.
"""

from __future__ import annotations

from pathlib import Path

from race.plot import render_chart
from race.results import Results, as_json, from_json
from race.texts import fill_catalogue, fill_page

_ROOT = Path(__file__).parents[1]
RESULTS = _ROOT / "race" / "results.json"
CHART = _ROOT / "race" / "results.svg"
PAGES = (
    _ROOT / "README.md",
    _ROOT / "race" / "README.md",
    _ROOT / "docs" / "limits.md",
    _ROOT / "docs" / "post-init-sleep.md",
    _ROOT / "docs" / "reports" / "tekton-exit-255.md",
)
CATALOGUE = _ROOT / "webhook" / "core" / "defects" / "cri-o-9840.yaml"


def write_pages(results: Results) -> None:
    """Keep the results, and write them to the chart, the pages and the catalogue."""
    RESULTS.write_text(as_json(results), encoding="utf-8")
    for path, text in rendered(results).items():
        path.write_text(text, encoding="utf-8")


def rendered(results: Results) -> dict[Path, str]:
    """Return the content of each file that shows the results."""
    pages = {page: fill_page(page.read_text(encoding="utf-8"), results) for page in PAGES}
    catalogue = fill_catalogue(CATALOGUE.read_text(encoding="utf-8"), results)
    return {CHART: render_chart(results), **pages, CATALOGUE: catalogue}


def committed_results() -> Results:
    """Return the results that the pages show."""
    return from_json(RESULTS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    write_pages(committed_results())
