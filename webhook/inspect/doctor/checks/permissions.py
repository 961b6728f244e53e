"""The rights of podsettle's ServiceAccount."""

from __future__ import annotations

import asyncio
from typing import Any

from webhook.cluster.errors import ApiError
from webhook.cluster.reader import path_of
from webhook.cluster.rights import Right
from webhook.cluster.unread import NotAllowedError
from webhook.inspect.cluster_flags import Command, kubectl
from webhook.inspect.doctor.checks.check import DoctorCheck
from webhook.inspect.doctor.commands import helm_upgrade, json_patch
from webhook.inspect.doctor.model import Result, fault, ok
from webhook.inspect.doctor.rights import Rule, required_rules
from webhook.inspect.doctor.round_readings import Installed
from webhook.inspect.installation import Installation

_MAX_CONCURRENT_REQUESTS = 8
_REVIEW = Right("create", "authorization.k8s.io", "subjectaccessreviews")


async def _check_permissions(installed: Installed) -> list[Result]:
    installation = installed.installation
    rules = required_rules(installation)
    limit = asyncio.Semaphore(_MAX_CONCURRENT_REQUESTS)

    async def allowed(rule: Rule, verb: str) -> bool:
        async with limit:
            return await _is_allowed(installed, rule, verb)

    asked = [(rule, verb) for rule in rules for verb in rule.verbs]
    answers = await asyncio.gather(*(allowed(rule, verb) for rule, verb in asked))
    missing = [pair for pair, answer in zip(asked, answers, strict=True) if not answer]
    if not missing:
        return [ok(f"the account {_account(installation)} has all {len(asked)} rights")]
    names = ", ".join(str(_right(rule, verb)) for rule, verb in missing)
    return [
        fault(
            f"the account {_account(installation)} lacks: {names}",
            "Grant them again. Another tool or a person has changed the roles of the chart.",
            *restoring_commands(installation, missing),
        )
    ]


def restoring_commands(
    installation: Installation, missing: list[tuple[Rule, str]]
) -> list[Command]:
    """Return the commands that grant the missing rights to the account."""
    if installation.helm_release:
        return [helm_upgrade(installation)]
    # The chart gives all its objects the name of the Deployment.
    name = installation.name
    if installation.service_account == "default":
        # The chart names an account. A role must not be given to all pods of the namespace.
        account = ("set", "serviceaccount", f"deployment/{name}", name)
        return [kubectl("-n", installation.namespace, *account)]
    roles: dict[str | None, dict[Rule, list[str]]] = {}
    for rule, verb in missing:
        roles.setdefault(rule.namespace, {}).setdefault(rule, []).append(verb)
    return [
        json_patch(
            "role" if namespace else "clusterrole",
            name,
            (
                {"op": "add", "path": "/rules/-", "value": _policy_rule(rule, verbs)}
                for rule, verbs in rules.items()
            ),
            namespace,
        )
        for namespace, rules in roles.items()
    ]


def _policy_rule(rule: Rule, verbs: list[str]) -> dict[str, Any]:
    body: dict[str, Any] = {"apiGroups": [rule.group], "resources": [rule.resource], "verbs": verbs}
    return body | ({"resourceNames": [rule.name]} if rule.name else {})


def _account(installation: Installation) -> str:
    return f"system:serviceaccount:{installation.namespace}:{installation.service_account}"


def _right(rule: Rule, verb: str) -> Right:
    resource, _, subresource = rule.resource.partition("/")
    return Right(verb, rule.group, resource, rule.namespace, rule.name, subresource)


async def _is_allowed(installed: Installed, rule: Rule, verb: str) -> bool:
    """Ask the API server whether the account has a right. Raises NotAllowedError."""
    installation = installed.installation
    account = _account(installation)
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": account,
            # The API server adds these groups when the account authenticates, but not here.
            "groups": [
                "system:serviceaccounts",
                f"system:serviceaccounts:{installation.namespace}",
                "system:authenticated",
            ],
            **_right(rule, verb).review_attributes(),
        },
    }
    try:
        answer = await installed.server.request("POST", path_of(_REVIEW), review)
    except ApiError as error:
        if error.status == 403:
            raise NotAllowedError(_REVIEW) from None
        raise
    return bool((answer.get("status") or {}).get("allowed"))


PERMISSIONS = DoctorCheck(
    "permissions", "whether podsettle's ServiceAccount has its rights", _check_permissions
)
