"""Rights in words, as commands, and in reviews."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from webhook.cluster.rights import Right


@pytest.mark.parametrize(
    ("right", "words", "command"),
    [
        (
            Right("list", "", "pods"),
            "list pods in all namespaces",
            "kubectl auth can-i list pods -A",
        ),
        (
            Right("list", "", "pods", "ci"),
            "list pods in namespace ci",
            "kubectl auth can-i list pods -n ci",
        ),
        (
            Right("get", "", "pods", "ci", subresource="proxy"),
            "get pods/proxy in namespace ci",
            "kubectl auth can-i get pods --subresource=proxy -n ci",
        ),
        (
            Right("get", "", "secrets", "ci", "tls"),
            "get secrets/tls in namespace ci",
            "kubectl auth can-i get secrets/tls -n ci",
        ),
        (
            Right("list", "node.k8s.io", "runtimeclasses"),
            "list runtimeclasses",
            "kubectl auth can-i list runtimeclasses.node.k8s.io",
        ),
        (Right("get", "", "/metrics"), "get /metrics", "kubectl auth can-i get /metrics"),
    ],
)
def test_right_is_readable_and_can_be_asked_for(right: Right, words: str, command: str) -> None:
    (program,) = right.command
    assert (str(right), shlex.join(program)) == (words, command)


def test_review_asks_for_exactly_the_right() -> None:
    cases: list[tuple[Right, dict[str, Any]]] = [
        (
            Right("get", "apps", "deployments", "ci", "web", "scale"),
            {
                "resourceAttributes": {
                    "verb": "get",
                    "group": "apps",
                    "resource": "deployments",
                    "subresource": "scale",
                    "namespace": "ci",
                    "name": "web",
                }
            },
        ),
        (
            Right("list", "", "nodes"),
            {"resourceAttributes": {"verb": "list", "resource": "nodes"}},
        ),
        (
            Right("get", "", "/metrics"),
            {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}},
        ),
    ]
    assert [(right, right.review_attributes()) for right, _ in cases] == cases
