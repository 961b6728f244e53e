"""Tests of what the chart lets podsettle and Prometheus read, and of its NetworkPolicy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.helm import NAMESPACE, VALUES, named, objects, only, rendered, template


def test_service_monitor_selects_the_service_and_reads_its_token_from_a_secret() -> None:
    """OpenShift's user workload monitoring rejects paths in the Prometheus pod."""
    for values in ("openshift", "everything"):
        monitor = only("ServiceMonitor", objects(values))
        # Argo CD's label tracking rewrites app.kubernetes.io/instance.
        selector = monitor["spec"]["selector"]["matchLabels"]
        assert selector.keys() == {"podsettle.dev/service"}
        assert selector.items() <= only("Service", objects(values))["metadata"]["labels"].items()
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["port"] == "web"
        assert "bearerTokenFile" not in endpoint
        assert endpoint["tlsConfig"].keys() == {"ca", "serverName"}
        assert endpoint["authorization"]["type"] == "Bearer"
    given = endpoint["authorization"]["credentials"]
    assert given == {"name": "scraping", "key": "bearer"}
    assert not [each for each in objects("everything") if each["kind"] == "Secret"]


def test_scrape_token_grants_access_to_metrics_only() -> None:
    monitor = only("ServiceMonitor", objects("openshift"))
    credentials = monitor["spec"]["endpoints"][0]["authorization"]["credentials"]
    secret = named("Secret", credentials["name"], "openshift")
    assert secret["type"] == "kubernetes.io/service-account-token"
    # Kubernetes writes the keys `ca.crt`, `namespace` and `token`.
    assert credentials["key"] == "token"
    assert "data" not in secret
    account = secret["metadata"]["annotations"]["kubernetes.io/service-account.name"]
    made = named("ServiceAccount", account, "openshift")
    assert made["automountServiceAccountToken"] is False
    (binding,) = (
        each
        for each in objects("openshift")
        if each["kind"].endswith("Binding") and each["subjects"][0]["name"] == account
    )
    role = named("ClusterRole", binding["roleRef"]["name"], "openshift")
    assert role["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]


def test_role_grants_access_to_the_secret_only_if_podsettle_manages_it() -> None:
    def may(values: str) -> set[str]:
        rules = named("Role", "podsettle", values)["rules"]
        return {resource for rule in rules for resource in rule["resources"]}

    assert may("default") == {"leases", "deployments", "secrets"}
    for source in ("cert-manager", "cert-manager-issuer", "openshift", "files"):
        assert may(source) == {"leases", "deployments"}


def test_pull_secrets_are_readable_only_in_the_configured_namespaces() -> None:
    """The cases are: in no namespace, in every namespace, in some namespaces."""

    def bound(*flags: str, name: str = "podsettle") -> set[tuple[str, str | None]]:
        made = rendered(None, *flags)
        account = only("ServiceAccount", made)["metadata"]
        granted = [
            each for each in made if each.get("roleRef", {}).get("name") == f"{name}-pull-secrets"
        ]
        for each in granted:
            assert each["roleRef"]["kind"] == "ClusterRole"
            (subject,) = each["subjects"]
            assert (subject["name"], subject["namespace"]) == (account["name"], NAMESPACE)
        return {(each["kind"], each["metadata"].get("namespace")) for each in granted}

    assert bound() == set()
    assert "-pull-secrets" not in template()
    assert bound("--set=imageConfig.pullSecrets=true") == {("ClusterRoleBinding", None)}
    some = ("--values", str(VALUES["everything"]))
    assert bound(*some, name="settle") == {("RoleBinding", "ci"), ("RoleBinding", "builds")}
    role = named("ClusterRole", "settle-pull-secrets", "everything")
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["secrets", "serviceaccounts"], "verbs": ["get"]}
    ]


def test_network_policy_allows_egress_only_to_the_configured_ports() -> None:
    def egress(*flags: str) -> set[int] | None:
        spec = only("NetworkPolicy", rendered(None, *flags))["spec"]
        assert ("Egress" in spec["policyTypes"]) is ("egress" in spec)
        if "egress" not in spec:
            return None
        (rule,) = spec["egress"]
        # The rule has no addresses, because registries redirect podsettle to other hosts for blobs.
        assert rule.keys() == {"ports"}
        tcp = [each["port"] for each in rule["ports"] if each["protocol"] == "TCP"]
        assert len(tcp) == len(set(tcp))
        return set(tcp) - {53, 5353}

    api_server = "--set-json=networkPolicy.apiServerPorts=[443,6443]"
    assert egress() is None
    assert egress(api_server) == {443, 6443}
    assert egress(api_server, "--set-json=networkPolicy.registryPorts=[443,5000]") == {
        443, 6443, 5000
    }  # fmt: skip
    for url, port in (
        ("http://proxy.example:3128", 3128),
        ("http://proxy.example", 80),
        ("https://[fd00::1]/", 443),
    ):
        assert egress(api_server, f"--set=proxy.httpsProxy={url}") == {443, 6443, port}
    assert egress("--set=proxy.httpsProxy=http://proxy.example:3128") is None


API_SERVER = {"ipBlock": {"cidr": "10.0.0.10/32"}}
PROMETHEUS = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
TEST_POD = {
    "podSelector": {
        "matchLabels": {
            "app.kubernetes.io/component": "test",
            "app.kubernetes.io/instance": "podsettle",
            "app.kubernetes.io/name": "podsettle",
        }
    }
}


@pytest.mark.parametrize(
    ("values", "reviews", "web"),
    [
        ({}, None, None),
        ({"clients": [API_SERVER]}, [API_SERVER], [API_SERVER]),
        ({"clients": [API_SERVER], "webClients": []}, [API_SERVER], [API_SERVER]),
        ({"clients": [API_SERVER], "webClients": None}, [API_SERVER], [API_SERVER]),
        (
            {"clients": [API_SERVER], "webClients": [PROMETHEUS]},
            [API_SERVER],
            [PROMETHEUS, API_SERVER],
        ),
        # As before reviews had a port of their own.
        (
            {"clients": [API_SERVER, PROMETHEUS], "webClients": [PROMETHEUS]},
            [API_SERVER, PROMETHEUS],
            [PROMETHEUS, API_SERVER],
        ),
        ({"clients": [], "webClients": [PROMETHEUS]}, None, [PROMETHEUS]),
    ],
)
@pytest.mark.parametrize("with_test_pod", [False, True])
def test_network_policy_admits_only_the_given_clients_to_each_port(
    values: Any, reviews: Any, web: Any, with_test_pod: bool
) -> None:
    given = {f"networkPolicy.{key}": value for key, value in values.items()}
    given |= {"port": 10443, "webPort": 10444, "helmTest.enabled": with_test_pod}
    policy = only("NetworkPolicy", rendered(given))
    found = {rule["ports"][0]["port"]: rule for rule in policy["spec"]["ingress"]}
    assert all(len(rule["ports"]) == 1 for rule in policy["spec"]["ingress"])
    if reviews and with_test_pod:
        reviews = [*reviews, TEST_POD]
    # A rule without `from` admits every client, and so does one with an empty list.
    assert {port: rule.get("from") for port, rule in found.items()} == {
        10443: reviews,
        10444: web,
    }
    assert [] not in (rule.get("from") for rule in found.values())


def test_rbac_rules_contain_no_wildcards() -> None:
    for each in objects("everything"):
        for rule in each.get("rules", ()):
            said = [value for values in rule.values() for value in values]
            assert "*" not in said
            if rule.get("verbs") == ["get", "update"]:
                assert rule["resourceNames"]
