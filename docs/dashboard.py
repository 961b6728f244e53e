"""The picture of the chart's Grafana dashboard, for docs/dashboard.md.

`make_picture` sends the queries of the dashboard to a Prometheus and draws the answers. Grafana
does not take part. `python -m tests.support.dashboard_scenario` makes the data, and writes the
picture.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from docs import dashboard_svg
from docs.dashboard_svg import Box, Drawing, Period, Series

Json: TypeAlias = dict[str, Any]

DASHBOARD = Path(__file__).parents[1] / "charts" / "podsettle" / "dashboards" / "podsettle.json"
PICTURE = Path(__file__).parent / "dashboard.svg"


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel."""

    expression: str
    legend: str
    is_instant: bool


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of the dashboard. A row has no queries."""

    title: str
    kind: str
    box: Box
    queries: tuple[Query, ...]
    unit: str
    is_stacked: bool
    shows_name: bool
    """Whether a single value is shown by the name of its series."""


class Prometheus(Protocol):
    """The HTTP API of a Prometheus."""

    def __call__(self, path: str, parameters: Mapping[str, str]) -> list[Json]:
        """Return `data.result` of the answer to a GET request."""


def load_panels() -> list[Panel]:
    """Return the panels of the dashboard in their order."""
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return [_panel(each) for each in dashboard["panels"]]


def _panel(panel: Json) -> Panel:
    defaults = panel.get("fieldConfig", {}).get("defaults", {})
    position = panel["gridPos"]
    return Panel(
        panel["title"],
        panel["type"],
        Box(position["x"], position["y"], position["w"], position["h"]),
        tuple(
            Query(target["expr"], target["legendFormat"], target.get("instant", False))
            for target in panel.get("targets", ())
        ),
        defaults.get("unit", "none"),
        defaults.get("custom", {}).get("stacking", {}).get("mode") == "normal",
        panel.get("options", {}).get("textMode") == "name",
    )


def expand(expression: str, variables: Mapping[str, str]) -> str:
    """Return a query with the values of the dashboard's variables."""
    return re.sub(r"\$(\w+)", lambda found: variables[found[1]], expression)


def make_picture(prometheus: Prometheus, variables: Mapping[str, str], period: Period) -> str:
    """Return the dashboard as an SVG document, with the data of a Prometheus."""
    drawings = [
        Drawing(
            panel.title,
            panel.kind,
            panel.box,
            tuple(_series_of(panel, prometheus, variables, period)),
            panel.unit,
            panel.is_stacked,
            panel.shows_name,
        )
        for panel in load_panels()
    ]
    return dashboard_svg.render(drawings, period)


def _series_of(
    panel: Panel, prometheus: Prometheus, variables: Mapping[str, str], period: Period
) -> Iterator[Series]:
    """Yield the series that the queries of a panel return."""
    for query in panel.queries:
        parameters = {"query": expand(query.expression, variables)}
        if query.is_instant:
            parameters["time"] = str(period.end)
            found = prometheus("/api/v1/query", parameters)
        else:
            parameters |= {
                "start": str(period.start),
                "end": str(period.end),
                "step": str(period.step),
            }
            found = prometheus("/api/v1/query_range", parameters)
        for each in found:
            points = each.get("values") or [each["value"]]
            yield Series(
                _legend(query.legend, each["metric"]),
                each["metric"],
                tuple((float(time), float(value)) for time, value in points),
            )


def _legend(pattern: str, labels: Mapping[str, str]) -> str:
    """Return the name of a series as Grafana writes it."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), pattern).strip()
