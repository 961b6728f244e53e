"""The metrics and labels that PromQL expressions and scrapes name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from tests.support.paths import CHART

DASHBOARD = CHART / "dashboards" / "podsettle.json"
_TEXT = re.compile(r'"[^"]*"')
_SELECTED = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{")
_OURS = re.compile(r"\b(?:podsettle|apiserver|process)_\w+")

_SELECTOR = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}")
_MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"(?:[^"\\]|\\.)*"')
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")

TARGET_LABELS = {"namespace", "job", "pod", "instance"}
"""The labels that Prometheus adds to each sample of a scrape."""
API_SERVER_LABELS: dict[str, set[str]] = {
    "apiserver_admission_webhook_fail_open_count": {"name", "type"},
    "apiserver_admission_webhook_rejection_count": {
        *("error_type", "name", "operation", "rejection_code", "type"),
    },
    "apiserver_admission_webhook_admission_duration_seconds_bucket": {
        *("le", "name", "operation", "rejected", "type"),
    },
}
"""The labels of the API server's metrics. A test compares them with a scrape."""


class Query(NamedTuple):
    """A query of the dashboard, with the name of its series."""

    expression: str
    legend: str


def dashboard_queries() -> list[Query]:
    """The queries of all panels of the chart's dashboard."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    targets = (target for panel in panels for target in panel.get("targets", ()))
    return [Query(target["expr"], target["legendFormat"]) for target in targets]


def metrics_in(expression: str) -> set[str]:
    """The metrics that an expression selects, each with braces after its name."""
    bare = _TEXT.sub("", expression)
    found = set(_SELECTED.findall(bare))
    assert found, expression
    assert set(_OURS.findall(bare)) <= found, f"a metric without braces: {expression}"
    return found


def labels_in(expression: str) -> dict[str, set[str]]:
    """The labels that an expression names, by the metric that has to have them.

    A label of a grouping counts for each metric in the expression.
    """
    grouped = grouping_labels(expression)
    found: dict[str, set[str]] = {}
    for name, matchers in _SELECTOR.findall(expression):
        found.setdefault(name, set(grouped)).update(_MATCHER.findall(matchers))
    assert found.keys() == metrics_in(expression)
    return found


def grouping_labels(expression: str) -> set[str]:
    """The labels of all groupings in an expression, such as `by (name)`."""
    texts = ",".join(_GROUPING.findall(_TEXT.sub("", expression)))
    return {label.strip() for label in texts.split(",") if label.strip()}


def labels_by_sample(scrape: str) -> dict[str, set[str]]:
    """The labels of the samples in an answer of /metrics, by the samples' names."""
    found: dict[str, set[str]] = {}
    for line in scrape.splitlines():
        if line and not line.startswith("#"):
            name, _, labels = line.partition("{")
            found.setdefault(name.split(" ")[0], set()).update(_MATCHER.findall(labels))
    return found


def unknown_labels(expression: str, known: Mapping[str, set[str]]) -> set[tuple[str, str]]:
    """The metrics in an expression, each with what no sample has: a label, or "" for its name."""
    return {
        (name, label)
        for name, labels in labels_in(expression).items()
        for label in (labels - known[name] - TARGET_LABELS if name in known else {""})
    }
