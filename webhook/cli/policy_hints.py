"""Hints about valid policies that may not have the effect that their author wants."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from webhook.core.admission.decider import OperatorSettings
from webhook.core.cluster.nodes import Nodes
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.constants import LABEL_NAMESPACE_NAME
from webhook.core.export.native_policies import export
from webhook.core.pod import SpecFields
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.shadowed_remedies import shadowed_remedies
from webhook.core.policy.snapshot import Snapshot
from webhook.core.remedies import REMEDIES


def policy_hints(policy: SettlePolicy) -> Iterator[str]:
    """Yield hints about settings without an effect, and those of the remedies."""
    spec, name = policy.spec, policy.metadata.name
    images = spec.image_config
    if images.lookup == "Never" and (images.registries or images.mirrors):
        yield (
            f"{name}: registries and mirrors of imageConfig have no effect with lookup Never: "
            "set lookup: Registry"
        )
    for remedy, settings in spec.settings().items():
        yield from (f"{name}: {hint}" for hint in REMEDIES[remedy].hints(settings))
        if images.lookup == "Never" and REMEDIES[remedy].needs_entrypoints:
            yield (
                f"{name}: {remedy} skips containers without a command (NoCommand), and most "
                "servers have none: set imageConfig with lookup: Registry"
            )


def unknown_class_hints(
    policies: Iterable[SettlePolicy], class_names: Collection[str], where: str
) -> Iterator[str]:
    """Yield a hint for each RuntimeClass that a policy names and `class_names` does not contain.

    `where` says where the RuntimeClasses were looked for, such as `in the cluster`.
    """
    for policy in policies:
        for name in policy.spec.runtime_classes():
            if name not in class_names:
                yield f"{policy.metadata.name}: RuntimeClass {name!r} is not {where}"


def missing_node_label_hints(
    policies: Iterable[SettlePolicy], classes: Mapping[str, RuntimeClassInfo], nodes: Nodes
) -> Iterator[str]:
    """Yield a hint for each RuntimeClass whose labels no node has. Without nodes, yield none."""
    for policy in policies if nodes.all else ():
        for name in policy.spec.runtime_classes():
            clause = classes[name].no_matching_node(nodes.all) if name in classes else ""
            if clause:
                yield f"{policy.metadata.name}: RuntimeClass {name!r}: {clause}"


def missing_handler_hints(
    policies: Iterable[SettlePolicy], classes: Mapping[str, RuntimeClassInfo], nodes: Nodes
) -> Iterator[str]:
    """Yield a hint for each RuntimeClass whose handler no node of the class lists."""
    for policy in policies:
        for name in policy.spec.runtime_classes():
            info = classes.get(name)
            if info is None:
                continue
            pod = SpecFields(node_selector=dict(info.node_selector))
            if nodes.lacks_handler(info.handler, pod):
                yield (
                    f"{policy.metadata.name}: none of the nodes of RuntimeClass {name!r} lists its "
                    f"handler {info.handler!r}, so the remedy is skipped: podsettle node-config"
                )


def unknown_namespace_hints(
    policies: Iterable[SettlePolicy], namespaces: Collection[str], where: str
) -> Iterator[str]:
    """Yield a hint for each namespace that a policy names and `namespaces` does not contain."""
    for policy in policies:
        for name in sorted(named_namespaces(policy).difference(namespaces)):
            yield f"{policy.metadata.name}: namespace {name!r} is not {where}"


def named_namespaces(policy: SettlePolicy) -> frozenset[str]:
    """Return the namespaces that a policy's selector names."""
    selector = policy.spec.namespace_selector
    return selector.listed_values(LABEL_NAMESPACE_NAME) if selector else frozenset()


def shadowed_hints(
    policies: Iterable[SettlePolicy], among: Iterable[SettlePolicy]
) -> Iterator[str]:
    """Yield a hint for each remedy that never acts because another policy sets it first.

    `among` are all policies that would be in force. Hints that concern none of `policies` are left
    out.
    """
    names = {policy.metadata.name for policy in policies}
    for policy, remedy, by in shadowed_remedies(among):
        if policy in names or by in names:
            yield (
                f"{policy}: {remedy} never acts, because {by} sets it first for the same pods: "
                "raise the priority of the policy, or narrow its selectors"
            )


def missing_node_hints(
    policies: Iterable[SettlePolicy], has_nodes: bool, manifests: object
) -> Iterator[str]:
    """Yield a hint if a remedy has `when: NodesNeedIt`, but the manifests contain no Node."""
    if not has_nodes and any(
        getattr(settings, "when", None) == "NodesNeedIt"
        for policy in policies
        for settings in policy.spec.settings().values()
    ):
        yield f"no Node in {manifests}: remedies with `when: NodesNeedIt` are treated as needed"


def export_hints(policies: Sequence[SettlePolicy], view: Snapshot) -> Iterator[str]:
    """Yield a line that says which policies `podsettle export` can print.

    The policies of `view` contain the checked ones.
    """
    names = [policy.metadata.name for policy in policies]
    found = export(view.policies, view, OperatorSettings(), names=names)
    left_out = [f"{each.policy}/{each.part}" for each in found.not_native]
    clauses = []
    if whole := [name for name in names if name not in {each.policy for each in found.not_native}]:
        clauses.append(f"can print the whole of {', '.join(whole)}")
    if left_out:
        clauses.append(f"cannot print {', '.join(left_out)}")
    if clauses:
        yield f"podsettle export {', and '.join(clauses)}"
