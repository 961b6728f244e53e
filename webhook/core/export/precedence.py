"""The policies to which a native policy yields, because of their precedence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from webhook.core.policy.model import SettlePolicy
from webhook.core.remedies import REMEDIES


def first_policies(
    policy: SettlePolicy, by_precedence: Sequence[SettlePolicy]
) -> Mapping[str, list[SettlePolicy]]:
    """Return for each remedy of a policy the policies that come first if they cover the pod."""
    given, name = policy.spec.settings(), policy.metadata.name
    same_action = [each for each in by_precedence if each.spec.action == policy.spec.action]
    # By name: two models are compared field by field, and there may be hundreds.
    own_rank = [each.metadata.name for each in same_action].index(name)
    return {
        remedy: [
            each
            for rank, each in enumerate(same_action)
            if (rank < own_rank and remedy in each.spec.settings())
            or (rank != own_rank and _sets_other_class(each, remedy, settings))
        ]
        for remedy, settings in given.items()
    }


def _sets_other_class(policy: SettlePolicy, remedy: str, settings: Any) -> bool:
    """Return whether a policy sets another RuntimeClass than a remedy with these settings.

    Only remedies that are applied before `remedy` count, whatever the precedence of the policies.
    """
    wanted = REMEDIES[remedy].class_name(settings)
    if wanted is None:
        return False
    given = policy.spec.settings()
    for name, earlier in REMEDIES.items():
        if name == remedy:
            return False
        if name in given and earlier.class_name(given[name]) not in (None, wanted):
            return True
    return False
