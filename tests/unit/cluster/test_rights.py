"""Rights in words, as commands, and in reviews."""

from __future__ import annotations

import shlex

from webhook.cluster.rights import Right


def test_right_is_readable_and_can_be_asked_for() -> None:
    for right, words, asked in (
        (Right("list", "", "pods"), "list pods in all namespaces", "list pods -A"),
        (Right("list", "", "pods", "ci"), "list pods in namespace ci", "list pods -n ci"),
        (
            Right("get", "", "pods", "ci", subresource="proxy"),
            "get pods/proxy in namespace ci",
            "get pods --subresource=proxy -n ci",
        ),
        (
            Right("get", "", "secrets", "ci", "tls"),
            "get secrets/tls in namespace ci",
            "get secrets/tls -n ci",
        ),
        (
            Right("list", "node.k8s.io", "runtimeclasses"),
            "list runtimeclasses",
            "list runtimeclasses.node.k8s.io",
        ),
        (Right("get", "", "/metrics"), "get /metrics", "get /metrics"),
    ):
        (program,) = right.command
        assert (str(right), shlex.join(program)) == (words, f"kubectl auth can-i {asked}")


def test_review_asks_for_exactly_the_right() -> None:
    whole = Right("get", "apps", "deployments", "ci", "web", "scale").review_attributes()
    assert whole == {
        "resourceAttributes": {
            "verb": "get",
            "group": "apps",
            "resource": "deployments",
            "subresource": "scale",
            "namespace": "ci",
            "name": "web",
        }
    }
    nodes = Right("list", "", "nodes").review_attributes()
    assert nodes == {"resourceAttributes": {"verb": "list", "resource": "nodes"}}
    metrics = Right("get", "", "/metrics").review_attributes()
    assert metrics == {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}
