"""The rights that podsettle's ServiceAccount needs. They are those of the chart."""

from __future__ import annotations

from typing import NamedTuple

from webhook.core.policy.crd import CRD_NAME
from webhook.inspect.installation import Installation
from webhook.inspect.webhook_configurations_api import CONFIGURATION_GROUP, CONFIGURATIONS_RESOURCE


class Rule(NamedTuple):
    """One rule of a ClusterRole or a Role, for one resource."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    name: str | None = None
    """The only object of the rule. None: all objects."""
    namespace: str | None = None
    """None: the rule is in the ClusterRole."""


def required_rules(installation: Installation) -> list[Rule]:
    """Return the rules without which an installation does not work."""
    rules = [
        Rule("", "namespaces", ("get", "list", "watch")),
        Rule("", "nodes", ("list", "watch")),
        Rule("node.k8s.io", "runtimeclasses", ("list", "watch")),
        Rule("podsettle.dev", "settlepolicies", ("list", "watch")),
        Rule("podsettle.dev", "settlepolicies/status", ("patch",)),
        Rule("apiextensions.k8s.io", "customresourcedefinitions", ("list", "watch"), CRD_NAME),
        Rule(
            CONFIGURATION_GROUP,
            CONFIGURATIONS_RESOURCE,
            ("list", "watch", "patch"),
            installation.configuration,
        ),
        Rule("authentication.k8s.io", "tokenreviews", ("create",)),
        Rule("authorization.k8s.io", "subjectaccessreviews", ("create",)),
        Rule("coordination.k8s.io", "leases", ("create",), None, installation.namespace),
        Rule(
            "coordination.k8s.io",
            "leases",
            ("get", "update"),
            installation.lease,
            installation.namespace,
        ),
        # The owner of the Lease.
        Rule("apps", "deployments", ("get",), installation.lease, installation.namespace),
    ]
    if installation.is_self_managed:
        secret = installation.tls_secret
        rules.append(Rule("", "secrets", ("get", "update"), secret, installation.namespace))
    if installation.writes_events:
        rules.append(Rule("", "events", ("create", "patch")))
    return rules
