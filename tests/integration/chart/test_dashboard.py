"""The chart's Grafana dashboard: its metrics, labels and reasons exist."""

from __future__ import annotations

import json
import re
from itertools import combinations

import pytest
from prometheus_client import generate_latest

from docs.generate import example_metrics
from tests.support.helm import NAMESPACE, Json, named, objects, only, rendered
from tests.support.process import run
from tests.support.promql import (
    API_SERVER_LABELS,
    DASHBOARD,
    TARGET_LABELS,
    dashboard_queries,
    grouping_labels,
    labels_by_sample,
    metrics_in,
    unknown_labels,
)
from webhook.core.reasons import Reason

QUERIES = dashboard_queries()
CONTENT = json.loads(DASHBOARD.read_text())


def scrape() -> str:
    return generate_latest(example_metrics().registry).decode()


@pytest.mark.needs("promtool")
def test_promtool_accepts_the_metrics() -> None:
    command = ["promtool", "check", "metrics"]
    done = run(*command, input=scrape())
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_dashboard_uses_only_existing_metrics_labels_and_reasons() -> None:
    known = labels_by_sample(scrape()) | API_SERVER_LABELS
    for query in QUERIES:
        assert not unknown_labels(query.expression, known)
        shown = set(re.findall(r"\{\{(\w+)\}\}", query.legend))
        assert shown <= (grouping_labels(query.expression) or TARGET_LABELS), query
        if "podsettle_outcomes_total" in query.expression:
            (values,) = re.findall(r'reason[=!]~"([^"]*)"', query.expression)
            assert set(values.split("|")) <= set(Reason)


def test_dashboard_and_alerts_use_the_metrics_that_are_for_operators() -> None:
    """A new metric belongs into a panel, or into this list."""
    used = {name.removesuffix("_bucket") for q in QUERIES for name in metrics_in(q.expression)}
    families = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in example_metrics().registry.collect()
    }
    assert families - used == {
        "podsettle_namespace_lookups_total",
        "podsettle_tasks",
        "process_virtual_memory_bytes",
        "process_start_time_seconds",
    }


def test_panels_select_the_metrics_of_one_installation() -> None:
    variables = {f"${each['name']}" for each in CONTENT["templating"]["list"]}
    assert variables == {"$datasource", "$namespace", "$job"}
    for query in QUERIES:
        for name in metrics_in(query.expression):
            selected = f'{name}{{namespace="$namespace",job="$job"'
            ours = not name.startswith("apiserver_")
            assert (selected in query.expression) is ours, query.expression
    for panel in CONTENT["panels"]:
        sources = [panel.get("datasource"), *(t["datasource"] for t in panel.get("targets", ()))]
        for source in filter(None, sources):
            assert source == {"type": "prometheus", "uid": "${datasource}"}


def test_panels_do_not_overlap_and_have_different_ids() -> None:
    boxes = [panel["gridPos"] for panel in CONTENT["panels"]]
    for one, other in combinations(boxes, 2):
        apart = any(
            first[start] + first[length] <= second[start]
            for first, second in ((one, other), (other, one))
            for start, length in (("x", "w"), ("y", "h"))
        )
        assert apart, (one, other)
    assert all(box["x"] + box["w"] <= 24 for box in boxes)
    assert len({panel["id"] for panel in CONTENT["panels"]}) == len(boxes)


def test_dashboard_is_installed_only_with_its_value() -> None:
    assert not [each for each in objects() if each["kind"] == "ConfigMap"]
    made = only("ConfigMap", rendered({"grafanaDashboard.enabled": True}))
    assert made["metadata"]["namespace"] == NAMESPACE
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert "annotations" not in made["metadata"]
    assert made["data"] == {"podsettle.json": DASHBOARD.read_text()}


def test_dashboard_has_the_chosen_labels_and_folder() -> None:
    made: Json = named("ConfigMap", "settle-dashboard", "everything")["metadata"]
    assert made["annotations"] == {"grafana_folder": "Admission"}
    assert made["labels"]["dashboard"] == "yes"
    assert "grafana_dashboard" not in made["labels"]
