"""The chart's alerts, tested with promtool from Debian's package `prometheus`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest

from docs.generate import example_metrics
from tests.support.helm import NAMESPACE, Json, named, only, rendered
from tests.support.paths import DOCS
from tests.support.process import run
from tests.support.promql import (
    API_SERVER_LABELS,
    grouping_labels,
    labels_by_sample,
    unknown_labels,
)

OPERATIONS = DOCS / "operations.md"
MINE = f'namespace="{NAMESPACE}",job="podsettle"'
EXPIRY = f"podsettle_certificate_expiry_timestamp_seconds{{{MINE}}}"
HOUR = 3600


@pytest.fixture(scope="module")
def groups() -> Json:
    found: Json = _rule({"prometheusRule.enabled": True})["spec"]
    return found


def _rule(values: Json) -> Json:
    return only("PrometheusRule", rendered(values))


def series(name: str, values: str, **labels: str) -> Json:
    extra = "".join(f',{key}="{value}"' for key, value in labels.items())
    return {"series": f"{name}{{{MINE}{extra}}}", "values": values}


HEALTHY: list[Json] = [
    series("up", "1x30", pod="a"),
    series("podsettle_check_ready", "1x30", pod="a", check="certificate"),
    series("podsettle_check_ready", "1x30", pod="a", check="registration"),
    series("podsettle_check_ready", "0x30", pod="b", check="shutdown"),
    series("podsettle_check_ready", "1x30", pod="b", check="certificate"),
    {"series": EXPIRY, "values": f"{200 * HOUR}x30"},
    series("podsettle_outcomes_total", "0x30", reason="InternalError"),
    series("podsettle_outcomes_total", "0x30", reason="Overloaded"),
    series("podsettle_outcomes_total", "0+9x30", reason="Applied"),
    series("podsettle_policy_still_needed", "1x30", pod="a", policy="p", remedy="postInitSleep"),
    {
        "series": 'apiserver_admission_webhook_fail_open_count{name="other.example"}',
        "values": "0+9x30",
    },
]

FIRING: list[tuple[str, list[Json]]] = [
    ("PodsettleDown", [series("up", "0x30", pod="a")]),
    # The target has disappeared, for example because there are no pods or no ServiceMonitor.
    ("PodsettleDown", [series("up", "1x5 stale", pod="a")]),
    ("PodsettleNotReady", [series("podsettle_check_ready", "0x30", pod="a", check="registration")]),
    ("PodsettleCertificateExpiring", [{"series": EXPIRY, "values": f"{180 * HOUR}x30"}]),
    (
        "PodsettleInternalError",
        [series("podsettle_outcomes_total", "0x18 1x12", reason="InternalError")],
    ),
    (
        "PodsettleOverloaded",
        [series("podsettle_outcomes_total", "0+1x30", reason="Overloaded")],
    ),
    (
        "PodsettleOverloaded",
        [series("podsettle_outcomes_total", "0+1x30", reason="DeadlineExceeded")],
    ),
    (
        "PodsettleNotAsked",
        [
            {
                "series": "apiserver_admission_webhook_fail_open_count"
                '{name="cluster.podsettle.dev",type="admit"}',
                "values": "1+1x30",
            }
        ],
    ),
    (
        "PodsettleNotAsked",
        [
            {
                "series": "apiserver_admission_webhook_fail_open_count"
                '{name="quick-init.cluster.podsettle.dev",type="admit"}',
                "values": "1+1x30",
            }
        ],
    ),
    (
        "PodsettleRefusesPods",
        [
            {
                "series": "apiserver_admission_webhook_rejection_count"
                '{name="opt-in.podsettle.dev",type="admit",error_type="calling_webhook_error"}',
                "values": "1+1x30",
            }
        ],
    ),
]


def _promtool(
    directory: Path,
    groups: Json,
    present: list[Json],
    firing: str | None,
    *,
    minutes: int = 20,
) -> None:
    (directory / "rules.yaml").write_text(yaml.safe_dump(groups))
    alerts = [rule["alert"] for group in groups["groups"] for rule in group["rules"]]
    # Only whether each alert fires is checked here, not its labels and annotations.
    questions = [
        {
            "expr": f'count by (alertname) (ALERTS{{alertname="{alert}",alertstate="firing"}})',
            "eval_time": f"{minutes}m",
            "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1}]
            if alert == firing
            else [],
        }
        for alert in alerts
    ]
    test = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": present, "promql_expr_test": questions}],
    }
    (directory / "test.yaml").write_text(yaml.safe_dump(test))
    done = run("promtool", "test", "rules", "test.yaml", cwd=directory)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.needs("promtool")
def test_no_alert_fires_while_podsettle_is_healthy(tmp_path: Path, groups: Json) -> None:
    _promtool(tmp_path, groups, HEALTHY, None)


@pytest.mark.needs("promtool")
def test_no_alert_fires_in_a_prometheus_that_does_not_scrape_podsettle(
    tmp_path: Path, groups: Json
) -> None:
    elsewhere = {"series": 'up{namespace="other",job="other"}', "values": "1x30"}
    _promtool(tmp_path, groups, [elsewhere], None)


@pytest.mark.needs("promtool")
@pytest.mark.parametrize(("alert", "wrong"), FIRING, ids=lambda part: str(part)[:30])
def test_alert_fires_for_its_problem(
    tmp_path: Path, groups: Json, alert: str, wrong: list[Json]
) -> None:
    replaced = {each["series"] for each in wrong}
    healthy = [each for each in HEALTHY if each["series"] not in replaced]
    _promtool(tmp_path, groups, healthy + wrong, alert)


def needed(values: str, *, pod: str = "a", remedy: str = "postInitSleep") -> Json:
    name = "podsettle_policy_still_needed"
    return series(name, values, pod=pod, policy="old", remedy=remedy)


@pytest.mark.needs("promtool")
@pytest.mark.parametrize(
    ("present", "fires"),
    [
        ([needed("0x1600"), needed("0x1600", pod="b")], True),
        ([needed("0x1600"), needed("0x1600", remedy="kubeletGate")], True),
        ([needed("0x1600"), needed("1x1600", remedy="kubeletGate")], False),
        # A replica that knows other nodes, or none.
        ([needed("0x1600"), needed("1x1600", pod="b")], False),
        # An affected node joins every day.
        ([needed("0x1000 1x5 0x595")], False),
        ([needed("1x100 0x1500")], False),
    ],
    ids=["all replicas", "all remedies", "one remedy", "one replica", "comes back", "too recent"],
)
def test_alert_fires_a_day_after_a_policy_is_no_longer_needed(
    tmp_path: Path, groups: Json, present: list[Json], fires: bool
) -> None:
    (group,) = groups["groups"]
    rules = [rule for rule in group["rules"] if rule["alert"] == "PodsettlePolicyNotNeeded"]
    alone = {"groups": [{**group, "rules": rules}]}
    firing = "PodsettlePolicyNotNeeded" if fires else None
    other = [each for each in HEALTHY if "still_needed" in each["series"]]
    other = [{**each, "values": "1x1600"} for each in other]
    _promtool(tmp_path, alone, present + other, firing, minutes=25 * 60)


def test_every_alert_has_a_test(groups: Json) -> None:
    alerts = {rule["alert"] for group in groups["groups"] for rule in group["rules"]}
    # The alert that takes a day has a test of its own.
    assert alerts == {alert for alert, _ in FIRING} | {"PodsettlePolicyNotNeeded"}


def test_every_alert_links_to_its_section_of_the_runbook() -> None:
    url = "https://docs.example/operations.html"
    spec = _rule({"prometheusRule.enabled": True, "prometheusRule.runbook": url})["spec"]
    headings = re.findall(r"^#+ (.+)$", OPERATIONS.read_text(), re.MULTILINE)
    anchors = {heading.lower().replace(" ", "-") for heading in headings}
    for group in spec["groups"]:
        for rule in group["rules"]:
            page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
            assert page == url
            assert anchor == rule["alert"].lower()
            assert anchor in anchors, f"docs/operations.md has no section {rule['alert']}"


def test_alerts_have_no_link_without_a_runbook_url(groups: Json) -> None:
    for group in groups["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"].keys() == {"summary"}


def test_alerts_and_their_tests_use_only_existing_metrics_and_labels(groups: Json) -> None:
    known = labels_by_sample(generate_latest(example_metrics().registry).decode())
    known |= {**API_SERVER_LABELS, "up": set()}
    for group in groups["groups"]:
        for rule in group["rules"]:
            assert not unknown_labels(rule["expr"], known), rule["alert"]
            shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
            assert shown <= grouping_labels(rule["expr"]), rule["alert"]
    for each in [*HEALTHY, *(found for _, wrong in FIRING for found in wrong), needed("0")]:
        assert not unknown_labels(each["series"], known)


@pytest.mark.needs("promtool")
def test_promtool_accepts_the_rules(tmp_path: Path, groups: Json) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(groups))
    done = run(
        "promtool", "check", "rules", "--lint=all", "--lint-fatal", "rules.yaml", cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_certificate_alert_depends_on_the_configured_lifetime() -> None:
    def left(values: str) -> int:
        rule = named("PrometheusRule", "settle", values)
        (expression,) = (
            each["expr"]
            for each in rule["spec"]["groups"][0]["rules"]
            if each["alert"] == "PodsettleCertificateExpiring"
        )
        return int(expression.rpartition("< ")[2])

    # Renewal is due 80 h before the expiry. The alert fires at three quarters of that time.
    assert left("everything") == 60 * HOUR
