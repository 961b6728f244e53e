"""The condition StillNeeded: whether a node still has a problem that a policy cures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from webhook.core.cluster.remedy_need import Need
from webhook.core.cluster.view import ClusterView
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.status_conditions import Condition
from webhook.core.remedies import REMEDIES
from webhook.core.remedies.policy_nodes import PolicyNodes


def still_needed(policy: SettlePolicy, nodes: PolicyNodes) -> Condition:
    """Return the condition StillNeeded: whether a node still has a problem that the policy cures.

    A remedy whose problem no release fixes keeps the policy needed. The remedies are judged by the
    nodes even with `when: Always`. `nodes` is the result of `all_nodes`.
    """
    needs = _grouped(remedy_needs(policy, nodes))
    # The policy is needed if one remedy is. It may be removed only if every remedy may be.
    for status in ("True", "Unknown", "False"):
        deciding = [need for need in needs if need.status == status]
        if deciding:
            break
    message = " ".join(_sentence(need, remedies, len(needs)) for need, remedies in needs.items())
    if status == "False":
        message += " The policy can be removed."
    return Condition("StillNeeded", deciding[0].status, deciding[0].reason, message)


def all_nodes(view: ClusterView, previous: PolicyNodes | None = None) -> PolicyNodes:
    """Return all nodes of a cluster, for the needs of several policies.

    The result is `previous`, with its answers, if that has the same nodes and RuntimeClasses.
    """
    pools, classes = view.nodes.pools, view.runtime_classes
    if previous and previous.pools is pools and previous.runtime_classes is classes:
        return previous
    return PolicyNodes(pools, view.nodes.defects, classes)


def remedy_needs(policy: SettlePolicy, nodes: PolicyNodes) -> dict[str, Need | None]:
    """Return for each remedy of a policy whether nodes still need it, by the remedies' names.

    `nodes` is the result of `all_nodes`. The need is None if no release that podsettle knows makes
    the remedy unnecessary.
    """
    settings = policy.spec.settings()
    # A RuntimeClass moves the pods to the nodes of its class, so those decide on every remedy.
    for name, remedy in REMEDIES.items():
        setting = remedy.runtime_class
        if setting and name in settings and setting.moves_every_pod(settings[name]):
            nodes = nodes.of_class(remedy.class_name(settings[name]) or "")
    needs: dict[str, Need | None] = {}
    for name in sorted(settings):
        judge = REMEDIES[name].still_needed
        needs[name] = judge(settings[name], nodes) if judge else nodes.need(name)
    return needs


def _grouped(by_remedy: Mapping[str, Need | None]) -> dict[Need, list[str]]:
    """Return the needs of a policy, each with the remedies that have it.

    The order is that of the remedies, but a need that no release ends comes last.
    """
    needs: dict[Need, list[str]] = {}
    incurable = []
    for name, need in by_remedy.items():
        if need is None:
            incurable.append(name)
        else:
            needs.setdefault(need, []).append(name)
    if incurable:
        message = f"no release that podsettle knows makes {', '.join(incurable)} unnecessary"
        needs[Need("True", "NoReleaseCures", message)] = []
    return needs


def _sentence(need: Need, remedies: Sequence[str], count: int) -> str:
    """Return a need as a sentence. It names the remedies if it is one of several needs."""
    if remedies and count > 1:
        return f"{', '.join(remedies)}: {need.message}."
    return f"{need.message[0].upper()}{need.message[1:]}."
