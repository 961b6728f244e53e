"""The hints of `podsettle check`, from the manifests and from the cluster that they are for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from webhook.cli.open_view import OpenView
from webhook.cli.policy_hints import (
    missing_handler_hints,
    policy_hints,
    shadowed_hints,
    unknown_class_hints,
    unknown_namespace_hints,
)
from webhook.cli.still_needed_lines import node_need_lines
from webhook.cluster.manifest_loader import ManifestObject
from webhook.core.cluster.nodes import Nodes
from webhook.core.policy.model import SettlePolicy
from webhook.core.preview.policies import replace_policies


def by_kind(objects: Iterable[ManifestObject]) -> dict[str, dict[str, Any]]:
    """Return the objects of manifests by kind and name. The first object of a name counts."""
    found: dict[str, dict[str, Any]] = {}
    for item in objects:
        found.setdefault(item.kind, {}).setdefault(item.name, item.model)
    return found


def hints(
    policies: Sequence[SettlePolicy],
    manifests: Mapping[str, Mapping[str, Any]],
    opened: OpenView | None,
    namespace: str | None,
) -> Iterator[str]:
    """Yield hints about valid policies that may not have the effect that their author wants.

    `manifests` are the checked objects by kind and name. `opened` is the cluster for which they
    are, or None if there is none. `namespace` is one that has to exist there.
    """
    if opened is not None and opened.live is not None:
        unread = [each for each in opened.live.unread if each.is_denied]
        if unread:
            names = ", ".join(each.resource for each in unread)
            rights = ", ".join(str(each.right) for each in unread)
            yield f"not compared with the {names} of {opened.title}: needs: {rights}"
    for policy in policies:
        yield from policy_hints(policy)
    classes, nodes = manifests.get("RuntimeClass", {}), manifests.get("Node", {})
    namespaces = manifests.get("Namespace", {})
    all_policies: Iterable[SettlePolicy] = policies
    known_nodes = Nodes(nodes.values())
    where = "among the manifests"
    if opened is not None:
        where = f"in {opened.title}"
        classes = {**opened.view.runtime_classes, **classes}
        namespaces = {**opened.view.namespaces, **namespaces}
        known_nodes = known_nodes if nodes else opened.view.nodes
        all_policies = replace_policies(opened.view.policies, policies).documents
    if classes if opened is None else opened.lists("runtimeclasses"):
        yield from unknown_class_hints(policies, classes, where)
    if opened is not None and opened.lists("namespaces"):
        yield from unknown_namespace_hints(policies, namespaces, where)
        if namespace is not None and namespace not in namespaces:
            yield f"namespace {namespace!r} is not {where}"
    yield from missing_handler_hints(policies, classes, known_nodes)
    yield from shadowed_hints(policies, all_policies)
    yield from node_need_lines(policies, known_nodes, classes)
