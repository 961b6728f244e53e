"""SettlePolicy objects of an API server, valid or not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from webhook.core.constants import API_VERSION, KIND
from webhook.core.json_path import json_path
from webhook.core.policy.model import SettlePolicy, parse_policy
from webhook.core.policy.validation_errors import FieldError, InvalidPolicyError, ManifestProblem


@dataclass(frozen=True, slots=True)
class PolicyObject:
    """A SettlePolicy object of the API server. `policy` is None if the object has problems."""

    name: str
    uid: str
    generation: int
    policy: SettlePolicy | None
    problems: tuple[FieldError, ...]


def read_policy(document: dict[str, Any]) -> PolicyObject:
    """Convert a SettlePolicy document of the API server."""
    metadata = document["metadata"]
    name, uid = metadata["name"], metadata.get("uid", "")
    generation = metadata.get("generation", 0)
    try:
        # The API server omits apiVersion and kind in the items of a list. The status is removed,
        # because it is not part of the policy.
        document = {"apiVersion": API_VERSION, "kind": KIND, **document, "status": None}
        policy = parse_policy(document)
    except InvalidPolicyError as error:
        return PolicyObject(name, uid, generation, None, error.errors)
    return PolicyObject(name, uid, generation, policy, ())


def policy_problems(objects: Iterable[PolicyObject]) -> tuple[ManifestProblem, ...]:
    """Return the problems of all policies."""
    return tuple(
        ManifestProblem(f"{KIND}/{policy.name}", 0, problem.message, json_path(problem.path))
        for policy in objects
        for problem in policy.problems
    )
