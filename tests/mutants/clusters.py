"""Clusters and policies for mutants, made from the examples.

The examples show every remedy, so a new remedy with an example takes part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import yaml
from pydantic import TypeAdapter

from tests.support.factories import IMAGE, MODERN, Json, namespace, node, policy, view
from tests.support.paths import EXAMPLES
from webhook.cluster.decode import read_namespace
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.core.admission.decider import OperatorSettings
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.defects.versions import Version
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.snapshot import Snapshot
from webhook.core.remedies import REMEDIES

SETTINGS = (
    OperatorSettings("podsettle-system", IMAGE),
    OperatorSettings("podsettle-system", "registry.example/linger:0.1.0"),
    OperatorSettings("podsettle-system"),
)
_SYSTEM_NAMESPACE = "kube-ci"
_NAMESPACE_LABELS: Mapping[str, Json] = {
    "twin-of-ci": {"team": "ci"},
    _SYSTEM_NAMESPACE: {"team": "ci", "kubernetes.io/metadata.name": _SYSTEM_NAMESPACE},
    "no-such-policy": {"podsettle.dev/policy": "gone"},
    "every-label": {"team": "build", "storage": "large", "nodes": "next"},
}


def _example_cluster() -> Snapshot:
    source = ManifestsSource(EXAMPLES)
    source.refresh()
    assert not source.problems
    others = [namespace(name, labels) for name, labels in _NAMESPACE_LABELS.items()]
    mcs = namespace("mcs", {"team": "ci"}, {"openshift.io/sa.scc.mcs": "s0:c1,c2"})
    spaces = [read_namespace(document) for document in (*others, mcs)]
    return replace(
        source.view,
        namespaces={**source.view.namespaces, **{space.name: space for space in spaces}},
    )


EXAMPLE = _example_cluster()
NAMESPACES = (*EXAMPLE.namespaces, "unknown")
COVERED_NAMESPACES = ("ci", "twin-of-ci", _SYSTEM_NAMESPACE, "mcs", "woodpecker", "every-label")
"""Namespaces without a label that asks for a policy, or for none."""


def _remedies_of_examples() -> Iterator[tuple[str, Any]]:
    for document in yaml.safe_load_all((EXAMPLES / "policies.yaml").read_text()):
        yield from document["spec"]["remedies"].items()


def _always(name: str, settings: Any) -> Any:
    """Return settings of a remedy with `when: Always`, if it has this setting."""
    schema = TypeAdapter(REMEDIES[name].settings).json_schema()
    return {**settings, "when": "Always"} if "when" in schema.get("properties", {}) else settings


def _policy_sets() -> Iterator[PolicySet]:
    yield EXAMPLE.policies
    found = [*_remedies_of_examples()]
    by_name = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [*NAMESPACES]}
    everywhere = {"matchExpressions": [by_name]}
    # With the names in the selector, the policies cover the system namespace too.
    for selector, changed in ((everywhere, _always), ({}, lambda _, settings: settings)):
        policies = [
            policy(
                f"p{number}", remedies={name: changed(name, settings)}, namespaceSelector=selector
            )
            for number, (name, settings) in enumerate(found)
        ]
        yield PolicySet(policies)
        yield PolicySet(_reversed_priorities(policies))
        yield from (PolicySet([each]) for each in policies)
    yield PolicySet([policy("audit", action="Audit", remedies=dict(found[:1])), policy("mutate")])
    rules = {"lookup": "Registry", "registries": ["registry.example", "quay.io"]}
    yield PolicySet([policy(imageConfig=rules, remedies={"postInitSleep": {"containers": ["*"]}})])
    yield PolicySet(
        [
            policy("q", podSelector={"matchLabels": {"app": "a"}}, remedies={"kubeletGate": {}}),
            policy("r", remedies={"postInitSleep": {"containers": ["*"], "delivery": "Shell"}}),
        ]
    )


def _reversed_priorities(policies: list[SettlePolicy]) -> list[SettlePolicy]:
    """Return copies of the policies of which the last comes first."""
    return [
        each.model_copy(update={"spec": each.spec.model_copy(update={"priority": number})})
        for number, each in enumerate(policies)
    ]


POLICY_SETS = (*_policy_sets(),)
EVERY_REMEDY = POLICY_SETS[1:3]
"""Policies that apply every remedy in every namespace, in two orders."""
_OTHER_CLASSES = {
    name: RuntimeClassInfo(name, "other", {"cpu": "250m"}, {"disk": "ssd"})
    for name in EXAMPLE.runtime_classes
}
_NODES: tuple[list[Json], ...] = (
    [node("n1", labels={"disk": "ssd"}), node("n2", "cri-o://1.36.0", "v1.36.0")],
    [MODERN],
    [node("n3", "containerd://1.7.2", "v1.37.0", {"kubernetes.io/arch": "arm64"})],
    [node("n4", labels={"disk": "ssd"}, handlers=["", "other"]), node("n5", handlers=[""])],
    [],
)
FACTS: tuple[Snapshot, ...] = (
    EXAMPLE,
    *(
        replace(EXAMPLE, nodes=view(nodes=nodes).nodes, server_version=server)
        for nodes in _NODES
        for server in (None, Version(1, 37))
    ),
    replace(EXAMPLE, runtime_classes=_OTHER_CLASSES),
    replace(EXAMPLE, runtime_classes={}),
    replace(EXAMPLE, invents_namespaces=False),
)
"""Clusters with other nodes, RuntimeClasses or versions. The policies are chosen apart."""
