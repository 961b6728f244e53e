"""Policies in the input of a preview. They decide in place of those of their names.

So a policy can be tried before it is applied, and before podsettle is installed.
"""

from __future__ import annotations

from collections.abc import Iterable

from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.model import SettlePolicy, is_policy, parse_policy
from webhook.core.policy.plan import compile_policy
from webhook.core.policy.validation_errors import InvalidPolicyError
from webhook.core.preview.list_items import find_objects


def policies_in(document: object) -> dict[str, SettlePolicy]:
    """Return the valid policies of a document by name. Of two with one name, the first counts."""
    policies: dict[str, SettlePolicy] = {}
    for found in find_objects(document):
        if is_policy(found.value):
            try:
                policy = parse_policy(found.value)
            except InvalidPolicyError:
                continue  # `pods_of` reports the errors.
            policies.setdefault(policy.metadata.name, policy)
    return policies


def replace_policies(policies: PolicySet, replacements: Iterable[SettlePolicy]) -> PolicySet:
    """Return a set in which some policies are replaced, by name, or added."""
    return policies.replaced((policy, compile_policy(policy)) for policy in replacements)
