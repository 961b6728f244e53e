"""SettlePolicy objects of an API server, valid or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec

from webhook.core.constants import API_VERSION, KIND
from webhook.core.json_path import json_path
from webhook.core.policy.model import SettlePolicy, parse_policy
from webhook.core.policy.validation_errors import FieldError, InvalidPolicyError, ManifestProblem
from webhook.core.types import Json


@dataclass(slots=True)
class PolicyObject:
    """A SettlePolicy object of the API server. `policy` is None if the object has problems."""

    name: str
    uid: str
    generation: int
    spec_json: bytes
    policy: SettlePolicy | None = None
    problems: tuple[FieldError, ...] = ()
    status: Json = field(default_factory=dict, compare=False)
    """The status in the cluster. Only the status writer uses it."""


def read_policy(
    document: Json, known: Mapping[str, PolicyObject] = MappingProxyType({})
) -> PolicyObject:
    """Convert a SettlePolicy document of the API server.

    Return the known object of this name if only the status has changed: each status that podsettle
    writes returns as an event, and validation takes up to 0.7 ms. The generation alone does not
    tell, because a new CRD may add defaults to an object.
    """
    metadata = document["metadata"]
    name, uid = metadata["name"], metadata.get("uid", "")
    generation, spec_json = metadata.get("generation", 0), msgspec.json.encode(document.get("spec"))
    found = known.get(name)
    if not found or (found.uid, found.generation, found.spec_json) != (uid, generation, spec_json):
        found = PolicyObject(name, uid, generation, spec_json)
        try:
            # The API server omits apiVersion and kind in the items of a list. The status is
            # removed, because it is not part of the policy.
            found.policy = parse_policy(
                {"apiVersion": API_VERSION, "kind": KIND, **document, "status": None}
            )
        except InvalidPolicyError as error:
            found.problems = error.errors
    found.status = document.get("status") or {}
    return found


def policy_problems(objects: Iterable[PolicyObject]) -> tuple[ManifestProblem, ...]:
    """Return the problems of all policies."""
    return tuple(
        ManifestProblem(f"{KIND}/{policy.name}", 0, problem.message, json_path(problem.path))
        for policy in objects
        for problem in policy.problems
    )
