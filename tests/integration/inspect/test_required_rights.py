"""The rights that doctor asks about, compared with the rules of the chart."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.helm import objects
from webhook.inspect.cluster_flags import NO_FLAGS
from webhook.inspect.doctor.checks.permissions import restoring_commands
from webhook.inspect.doctor.rights import Rule, required_rules
from webhook.inspect.installation import Installation, installation_of


def installation(values: str = "default", **annotations: str) -> Installation:
    (deployment,) = (each for each in objects(values) if each["kind"] == "Deployment")
    metadata = {**deployment["metadata"], "annotations": annotations}
    return installation_of({**deployment, "metadata": metadata})


def rules_of_the_chart(values: str, name: str) -> set[Rule]:
    """The rules of the roles with the name of the release, and of the role for Events."""
    return {
        Rule(
            rule["apiGroups"][0],
            resource,
            tuple(rule["verbs"]),
            object_name,
            role["metadata"].get("namespace"),
        )
        for role in objects(values)
        if role["kind"] in ("ClusterRole", "Role")
        and role["metadata"]["name"] in (name, f"{name}-events")
        for rule in role["rules"]
        for resource in rule["resources"]
        for object_name in rule.get("resourceNames", [None])
    }


@pytest.mark.parametrize("values", ["default", "files", "openshift", "everything"])
def test_required_rights_are_the_rules_of_the_chart(values: str) -> None:
    found = installation(values)
    assert set(required_rules(found)) == rules_of_the_chart(values, found.name)


def test_missing_right_is_restored_by_helm_or_by_a_patch_of_the_role() -> None:
    rules = required_rules(installation())
    nodes = next(rule for rule in rules if rule.resource == "nodes")
    lease = next(rule for rule in rules if rule.resource == "leases" and rule.name)
    missing = [(nodes, "list"), (nodes, "watch"), (lease, "update")]
    by_helm = installation(**{"meta.helm.sh/release-name": "settle"})
    (command,) = restoring_commands(by_helm, missing)
    printed = NO_FLAGS.command(command)
    assert printed.startswith("helm upgrade settle charts/podsettle -n podsettle-system ")
    patched = [words for (words,) in restoring_commands(installation(), missing)]
    assert [words[:-1] for words in patched] == [
        ("kubectl", "patch", "clusterrole", "podsettle", "--type=json", "-p"),
        ("kubectl", "-n", "podsettle-system", "patch", "role", "podsettle", "--type=json", "-p"),
    ]
    values: list[Any] = [json.loads(words[-1])[0]["value"] for words in patched]
    assert values == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "verbs": ["update"],
            "resourceNames": ["podsettle"],
        },
    ]
