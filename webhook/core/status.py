"""What a SettlePolicy's status says: conditions in the form of KEP-1623, and how far it reaches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from webhook.core.nodes import Node, Nodes
from webhook.core.policy import PolicyProblem, SettlePolicy
from webhook.core.view import ClusterView

Json: TypeAlias = dict[str, Any]

_MOST_NAMED = 5
_MOST_PROBLEMS = 10


class Condition(NamedTuple):
    """One condition, without the time at which it came to be so."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str


def accepted(problems: Sequence[PolicyProblem], in_force: bool) -> Condition:
    """Whether the policy is valid. `in_force` says whether any state of it is."""
    if not problems:
        return Condition("Accepted", "True", "Valid", "The policy is in force.")
    left = len(problems) - _MOST_PROBLEMS
    listed = "; ".join(map(str, problems[:_MOST_PROBLEMS])) + (f"; {left} more" if left > 0 else "")
    what = "The last valid state stays in force" if in_force else "Not in force"
    return Condition("Accepted", "False", "Invalid", f"{what}: {listed}")


def runtime_classes_found(policy: SettlePolicy, view: ClusterView) -> Condition:
    """Whether the RuntimeClasses that the policy names exist: pods go without it otherwise."""
    names = policy.spec.runtime_classes()
    missing = [name for name in names if view.runtime_class(name) is None]
    if missing:
        message = f"RuntimeClass {', '.join(missing)} does not exist; its remedy is skipped."
        return Condition("RuntimeClassesFound", "False", "RuntimeClassMissing", message)
    if not names:
        message = "The policy names no RuntimeClass."
        return Condition("RuntimeClassesFound", "True", "NoneNamed", message)
    message = f"RuntimeClass {', '.join(names)} exists."
    return Condition("RuntimeClassesFound", "True", "Found", message)


def still_needed(policy: SettlePolicy, nodes: Nodes) -> Condition:
    """Whether a node still has the problem that the policy is there for.

    Only `postInitSleep` is made unnecessary by releases that podsettle knows (`versions`); any
    other remedy keeps the policy needed.
    """
    others = [name for name in policy.spec.settings() if name != "postInitSleep"]
    if others:
        message = f"No release that podsettle knows makes {', '.join(others)} unnecessary."
        return Condition("StillNeeded", "True", "NoReleaseCures", message)
    count = len(nodes.all)
    if not count:
        return Condition("StillNeeded", "Unknown", "NoNodes", "No node is known.")
    affected = nodes.losing_exit_codes
    if not affected:
        message = f"None of {count} nodes runs an affected CRI-O: the policy can be removed."
        return Condition("StillNeeded", "False", "NodesAreFixed", message)
    message = f"{len(affected)} of {count} nodes still run an affected CRI-O: {_named(affected)}."
    return Condition("StillNeeded", "True", "NodesAreAffected", message)


def merge_conditions(
    wanted: Iterable[Condition], found: Iterable[Mapping[str, Any]], generation: int, now: str
) -> list[Json]:
    """Conditions as the API takes them; each keeps its time for as long as its status stays."""
    before = {condition.get("type"): condition for condition in found}
    return [
        {
            "type": condition.type,
            "status": condition.status,
            "observedGeneration": generation,
            "lastTransitionTime": _since(condition, before.get(condition.type), now),
            "reason": condition.reason,
            "message": condition.message,
        }
        for condition in wanted
    ]


def _since(condition: Condition, before: Mapping[str, Any] | None, now: str) -> str:
    if before is None or before.get("status") != condition.status:
        return now
    return str(before.get("lastTransitionTime", now))


def _named(nodes: Sequence[Node]) -> str:
    first = sorted(nodes, key=lambda node: node.name)[:_MOST_NAMED]
    left = len(nodes) - len(first)
    return ", ".join(f"{node.name} ({node.runtime})" for node in first) + (
        f" and {left} more" if left else ""
    )
