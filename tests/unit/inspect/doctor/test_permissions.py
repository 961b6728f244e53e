"""The commands that grant missing rights again."""

from __future__ import annotations

from webhook.inspect.cluster_flags import NO_FLAGS
from webhook.inspect.doctor.checks.permissions import restoring_commands
from webhook.inspect.doctor.rights import Rule
from webhook.inspect.installation import Installation

MISSING = [(Rule("", "nodes", ("list", "watch")), "list")]


def installation(**pod_spec: str) -> Installation:
    deployment = {"metadata": {}, "spec": {"template": {"spec": pod_spec}}}
    return Installation("system", "settle", {}, deployment)


def test_deployment_without_a_service_account_gets_the_one_of_the_chart() -> None:
    (command,) = restoring_commands(installation(), MISSING)
    assert (
        NO_FLAGS.command(command) == "kubectl -n system set serviceaccount deployment/settle settle"
    )


def test_rights_are_added_to_the_role_of_the_deployments_name() -> None:
    (command,) = restoring_commands(installation(serviceAccountName="own"), MISSING)
    assert NO_FLAGS.command(command).startswith("kubectl patch clusterrole settle --type=json ")
