"""The remedies of policies that never act, because an earlier policy sets them for the same pods.

Each remedy of a pod comes from the first policy that sets it (see `plan`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.webhook_selectors import SelectorPair, selector_pair


class ShadowedRemedy(NamedTuple):
    """A remedy of a policy that another policy replaces for every pod."""

    policy: str
    remedy: str
    by: str
    """The policy that sets the remedy first."""


def shadowed_remedies(policies: Iterable[SettlePolicy]) -> Iterator[ShadowedRemedy]:
    """Yield each remedy of a policy that never acts, with the first policy that replaces it.

    The selectors are compared, not the pods: a policy with more requirements counts as one that
    selects fewer pods. A policy with a namespaceSelector is judged by it alone, although further
    namespaces may name the policy by label.
    """
    earlier: dict[tuple[str, str], list[tuple[SelectorPair, str]]] = {}
    for policy in sorted(policies, key=lambda each: each.precedence):
        name, pair = policy.metadata.name, selector_pair(policy)
        for remedy in policy.spec.settings():
            setters = earlier.setdefault((policy.spec.action, remedy), [])
            by = next((other for selects, other in setters if selects.includes(pair)), None)
            if by is not None:
                yield ShadowedRemedy(name, remedy, by)
            else:
                setters.append((pair, name))
