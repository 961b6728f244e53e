"""The chart's Grafana dashboard: its metrics exist, and its picture shows all of it."""

from __future__ import annotations

import json
import re
import subprocess
from html import escape
from itertools import combinations

import pytest
import yaml
from prometheus_client import generate_latest

from docs.dashboard import DASHBOARD, PICTURE, Query, load_panels
from docs.generate import example_metrics
from tests.support.helm import NAMESPACE, Json, named, objects, set_flags, template
from tests.support.promql import (
    API_SERVER_LABELS,
    TARGET_LABELS,
    grouping_labels,
    labels_by_sample,
    metrics_in,
    samples_in,
    unknown_labels,
)
from webhook.core.reasons import Reason

PANELS = load_panels()
QUERIES = [query for panel in PANELS for query in panel.queries]


def scrape() -> str:
    return generate_latest(example_metrics().registry).decode()


@pytest.mark.needs("promtool")
def test_promtool_accepts_the_metrics() -> None:
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=scrape(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: str(query.legend))
def test_dashboard_uses_only_existing_metrics(query: Query) -> None:
    assert metrics_in(query.expression) <= samples_in(scrape()) | API_SERVER_LABELS.keys()


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: str(query.legend))
def test_dashboard_uses_only_existing_labels(query: Query) -> None:
    known = labels_by_sample(scrape()) | API_SERVER_LABELS
    assert not unknown_labels(query.expression, known)
    shown = set(re.findall(r"\{\{(\w+)\}\}", query.legend))
    assert shown <= (grouping_labels(query.expression) or TARGET_LABELS)


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: str(query.legend))
def test_dashboard_selects_only_existing_reasons(query: Query) -> None:
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
    dashboard = json.loads(DASHBOARD.read_text())
    variables = {f"${each['name']}" for each in dashboard["templating"]["list"]}
    assert variables == {"$datasource", "$namespace", "$job"}
    for query in QUERIES:
        for name in metrics_in(query.expression):
            selected = f'{name}{{namespace="$namespace",job="$job"'
            ours = not name.startswith("apiserver_")
            assert (selected in query.expression) is ours, query.expression
    for panel in dashboard["panels"]:
        sources = [panel.get("datasource"), *(t["datasource"] for t in panel.get("targets", ()))]
        for source in filter(None, sources):
            assert source == {"type": "prometheus", "uid": "${datasource}"}


def test_panels_do_not_overlap_and_have_different_ids() -> None:
    boxes = [panel.box for panel in PANELS]
    for one, other in combinations(boxes, 2):
        apart = (
            one.x + one.width <= other.x
            or other.x + other.width <= one.x
            or one.y + one.height <= other.y
            or other.y + other.height <= one.y
        )
        assert apart, (one, other)
    assert all(box.x + box.width <= 24 for box in boxes)
    identifiers = [panel["id"] for panel in json.loads(DASHBOARD.read_text())["panels"]]
    assert len(identifiers) == len(set(identifiers))


def test_picture_in_the_documentation_shows_every_panel() -> None:
    """Make it again after a change of the dashboard: see docs/dashboard.py."""
    picture = PICTURE.read_text()
    for panel in PANELS:
        assert f">{escape(panel.title)}</text>" in picture, panel.title


def test_dashboard_is_installed_only_with_its_value() -> None:
    assert not [each for each in objects() if each["kind"] == "ConfigMap"]
    (made,) = (
        each
        for each in yaml.safe_load_all(template(*set_flags({"grafanaDashboard.enabled": True})))
        if each and each["kind"] == "ConfigMap"
    )
    assert made["metadata"]["namespace"] == NAMESPACE
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert "annotations" not in made["metadata"]
    assert made["data"] == {"podsettle.json": DASHBOARD.read_text()}


def test_dashboard_has_the_chosen_labels_and_folder() -> None:
    made: Json = named("ConfigMap", "settle-dashboard", "everything")["metadata"]
    assert made["annotations"] == {"grafana_folder": "Admission"}
    assert made["labels"]["dashboard"] == "yes"
    assert "grafana_dashboard" not in made["labels"]
