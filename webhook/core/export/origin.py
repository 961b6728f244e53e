"""What a native policy says about the SettlePolicy and the version that it comes from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from webhook import __version__
from webhook.core.constants import (
    ANNOTATION_EXPORTED_BY,
    ANNOTATION_EXPORTED_DIGEST,
    ANNOTATION_EXPORTED_FROM,
)
from webhook.core.policy.model import SettlePolicy
from webhook.core.remedies import REMEDIES

_WITHOUT_EFFECT = {"description", "priority"}
"""The fields of a spec that no native policy has. What a priority decides is in the digest."""
_DIGEST_CHARACTERS = 16


def origin_annotations(
    policy: SettlePolicy, by_precedence: Sequence[SettlePolicy]
) -> dict[str, str]:
    """Return the annotations of the native policy of a SettlePolicy."""
    return {
        ANNOTATION_EXPORTED_FROM: policy.metadata.name,
        ANNOTATION_EXPORTED_BY: __version__,
        ANNOTATION_EXPORTED_DIGEST: digest(policy, by_precedence),
    }


def digest(policy: SettlePolicy, by_precedence: Sequence[SettlePolicy]) -> str:
    """Return a digest of all of the SettlePolicies that the native policy of one depends on.

    That is its spec, and the selectors of the policies to which it yields. Fields with their
    defaults do not count: the API server adds them, and a later version has more of them.
    """
    first = {
        remedy: [
            [each.metadata.name, _dumped(each, include={"namespace_selector", "pod_selector"})]
            for each in policies
        ]
        for remedy, policies in first_policies(policy, by_precedence).items()
        if policies
    }
    content = json.dumps([_dumped(policy, exclude=_WITHOUT_EFFECT), first], sort_keys=True)
    # With the prefix, no parser of YAML reads it as a number.
    return f"sha256:{hashlib.sha256(content.encode()).hexdigest()[:_DIGEST_CHARACTERS]}"


def _dumped(
    policy: SettlePolicy, include: set[str] | None = None, exclude: set[str] | None = None
) -> Any:
    return policy.spec.model_dump(
        mode="json", by_alias=True, exclude_defaults=True, include=include, exclude=exclude
    )


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
