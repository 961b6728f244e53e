"""The rights that doctor asks about, compared with the rules of the chart."""

from __future__ import annotations

import pytest

from tests.support.helm import objects
from webhook.cluster.rights import Right
from webhook.inspect.doctor.checks.api_server import required_rights
from webhook.inspect.installation import installation_of


def rights_of_the_chart(values: str, name: str) -> set[Right]:
    """The rights of the roles with the name of the release, and of the role for Events."""
    return {
        Right(verb, rule["apiGroups"][0], kind, namespace, object_name, subresource)
        for role in objects(values)
        if role["kind"] in ("ClusterRole", "Role")
        and role["metadata"]["name"] in (name, f"{name}-events")
        for namespace in [role["metadata"].get("namespace")]
        for rule in role["rules"]
        for resource in rule["resources"]
        for kind, _, subresource in [resource.partition("/")]
        for object_name in rule.get("resourceNames", [None])
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("values", ["default", "files", "openshift", "everything"])
def test_required_rights_are_the_rules_of_the_chart(values: str) -> None:
    (deployment,) = (each for each in objects(values) if each["kind"] == "Deployment")
    found = installation_of(deployment)
    rights = required_rights(found)
    assert set(rights) == rights_of_the_chart(values, found.name)
    assert len(rights) == len(set(rights))
