"""The nodes of a cluster, and which of them a pod could land on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from webhook.core.defects.catalogue import DEFECTS
from webhook.core.defects.defect import Defect, DefectStatus
from webhook.core.defects.versions import (
    IMAGE_VOLUMES_LOCKED_ON,
    IMAGE_VOLUMES_ON_BY_DEFAULT,
    Runtime,
    Version,
    mounts_image_volumes,
    parse_runtime,
    parse_version,
    supports_restart_rules,
)
from webhook.core.labels import compile_requirement
from webhook.core.pod import NodeSelectorTerm, SpecFields

_ARCHITECTURE_LABEL = "kubernetes.io/arch"
_OS_LABELS = ("kubernetes.io/os", "beta.kubernetes.io/os")

_MAX_AFFINITY_SIZE = 500
"""The maximum number of terms, requirements and values in an affinity. Webhooks run before API
validation, so a client can choose any number. If an affinity is larger, podsettle assumes that
every node fits."""
_MAX_AFFINITY_COMPARISONS = 20_000
"""The maximum of the affinity's size times the number of nodes. If the product is larger, podsettle
assumes that every node fits."""


@dataclass(frozen=True, slots=True)
class Node:
    """The fields of a Node that podsettle reads."""

    name: str
    labels: Mapping[str, str]
    runtime: Runtime
    kubelet: Version | None
    handlers: frozenset[str] | None = None
    """The runtime handlers that the node lists. The default handler is the empty text. None if the
    node lists none, as before Kubernetes 1.30: its handlers are then unknown."""

    @classmethod
    def read(
        cls,
        name: str,
        labels: Mapping[str, str],
        runtime_version: str,
        kubelet_version: str,
        handlers: frozenset[str] | None = None,
    ) -> Node:
        """Return a node from the texts of its `metadata` and `status`."""
        runtime, kubelet = parse_runtime(runtime_version), parse_version(kubelet_version)
        return cls(name, labels, runtime, kubelet, handlers or None)

    def status_for(self, defect: Defect) -> DefectStatus:
        """Return whether the node has a defect."""
        return defect.status_on(self.runtime, self.kubelet)

    def software_of(self, defect: Defect) -> str:
        """Return the release of the node that decides whether it has a defect, for messages."""
        if defect.component == "kubelet":
            return f"kubelet {self.kubelet or '?'}"
        return str(self.runtime) if self.runtime.name else "no runtime reported"


@dataclass(frozen=True, slots=True)
class Nodes:
    """All known nodes of the cluster, and the groups of nodes that decisions ask about.

    The groups are computed once per change of the nodes, not once per pod.
    """

    all: tuple[Node, ...] = ()
    defects: tuple[Defect, ...] = DEFECTS
    """The catalogue that the groups of affected nodes come from."""
    _by_remedy: Mapping[str, tuple[Node, ...]] = field(init=False, compare=False, repr=False)
    """The nodes that have a defect that a remedy cures, by the remedy's name."""
    image_volumes_uncertain: tuple[Node, ...] = field(init=False, compare=False)
    """The nodes that do not mount image volumes, or on which a feature gate may switch them off."""
    without_image_volumes: tuple[Node, ...] = field(init=False, compare=False)
    """The nodes that do not mount image volumes, even with the default feature gates."""
    without_restart_rules: tuple[Node, ...] = field(init=False, compare=False)
    needing_restart_rules: tuple[Node, ...] = field(init=False, compare=False)
    """The nodes without restart rules that have a defect that retryInitExit255 cures."""
    newest_kubelet: Version | None = field(init=False, compare=False)
    _by_handlers: Mapping[frozenset[str] | None, tuple[Node, ...]] = field(
        init=False, compare=False, repr=False
    )
    """The nodes without Windows by the runtime handlers that they list."""

    def __init__(self, nodes: Iterable[Node] = (), defects: tuple[Defect, ...] = DEFECTS) -> None:
        known = tuple(nodes)
        object.__setattr__(self, "all", known)
        object.__setattr__(self, "defects", defects)
        by_remedy = _group_by_remedy(known, defects)
        object.__setattr__(self, "_by_remedy", by_remedy)
        for name, minimum_kubelet in (
            ("image_volumes_uncertain", IMAGE_VOLUMES_LOCKED_ON),
            ("without_image_volumes", IMAGE_VOLUMES_ON_BY_DEFAULT),
        ):
            lacking = tuple(
                n for n in known if not mounts_image_volumes(n.kubelet, n.runtime, minimum_kubelet)
            )
            object.__setattr__(self, name, lacking)
        without_rules = tuple(n for n in known if not supports_restart_rules(n.kubelet))
        needing = by_remedy.get("retryInitExit255", ())
        needing_rules = tuple(n for n in needing if not supports_restart_rules(n.kubelet))
        object.__setattr__(self, "without_restart_rules", without_rules)
        object.__setattr__(self, "needing_restart_rules", needing_rules)
        kubelets = (n.kubelet for n in known if n.kubelet is not None)
        object.__setattr__(self, "newest_kubelet", max(kubelets, default=None))
        by_handlers: dict[frozenset[str] | None, list[Node]] = {}
        for each in (n for n in known if n.labels.get(_OS_LABELS[0]) != "windows"):
            by_handlers.setdefault(each.handlers, []).append(each)
        object.__setattr__(self, "_by_handlers", {k: tuple(v) for k, v in by_handlers.items()})

    def needing(self, remedy: str) -> tuple[Node, ...]:
        """Return the nodes that have a defect that the remedy cures."""
        return self._by_remedy.get(remedy, ())

    def need(self, remedy: str, pod: SpecFields) -> bool:
        """Return whether the pod could land on a node with a defect that the remedy cures.

        This is the question of `when: NodesNeedIt`. If no known node fits, return True. Such a pod
        waits for a node that podsettle does not know, for example from an autoscaler. A needless
        remedy costs less than the defect. Return True as well if the catalogue has no defect that
        the remedy cures, because its purpose is not known.
        """
        affected = self._by_remedy.get(remedy)
        return affected is None or any_node_fits(affected, pod) or not any_node_fits(self.all, pod)

    def lacks_handler(self, handler: str, pod: SpecFields) -> bool:
        """Return whether every known node that the pod could land on lacks a runtime handler.

        Nodes with Windows do not count. A node that lists no handlers may have any. If no known
        node fits, return False: the pod waits for a node that podsettle does not know.
        """
        lacking = others = tuple[Node, ...]()
        for handlers, nodes in self._by_handlers.items():
            if handlers is None or not handler or handler in handlers:
                others += nodes
            else:
                lacking += nodes
        return bool(lacking) and any_node_fits(lacking, pod) and not any_node_fits(others, pod)

    def mount_image_volumes(self, pod: SpecFields) -> bool:
        """Return whether every node that the pod could land on certainly mounts image volumes.

        If no known node fits, return False. Cordoned nodes count, because a node may be
        uncordoned before the pod is scheduled.
        """
        return not any_node_fits(self.image_volumes_uncertain, pod) and any_node_fits(self.all, pod)

    def may_lack_image_volumes(self, pod: SpecFields) -> bool:
        """Return whether the pod could land on a known node that does not mount image volumes."""
        return any_node_fits(self.without_image_volumes, pod)

    def may_lack_restart_rules(self, pod: SpecFields, *, among_all: bool) -> bool:
        """Return whether the pod could land on a known node without `restartPolicyRules`.

        `among_all` says whether all nodes count. If it is False, only nodes that need the remedy
        retryInitExit255 count, because the other nodes do not need the rules.
        """
        lacking = self.without_restart_rules if among_all else self.needing_restart_rules
        return any_node_fits(lacking, pod)


def _group_by_remedy(
    nodes: tuple[Node, ...], defects: tuple[Defect, ...]
) -> Mapping[str, tuple[Node, ...]]:
    """Return for each remedy the nodes that have a defect that it cures.

    Each pair of a runtime and a kubelet is looked up once, because many nodes have the same.
    """
    by_remedy: dict[str, list[Node]] = {name: [] for each in defects for name in each.remedies}
    groups_by_software: dict[tuple[Runtime, Version | None], tuple[list[Node], ...]] = {}
    for node in nodes:
        software = (node.runtime, node.kubelet)
        groups = groups_by_software.get(software)
        if groups is None:
            found = (each for each in defects if node.status_for(each).needs_remedy)
            remedies = {name for each in found for name in each.remedies}
            groups = groups_by_software[software] = tuple(by_remedy[name] for name in remedies)
        for group in groups:
            group.append(node)
    return {name: tuple(group) for name, group in by_remedy.items()}


def runs_on_windows(pod: SpecFields) -> bool:
    """Return whether the spec restricts the pod to Windows.

    The spec can do so by `os`, `windowsOptions`, the nodeSelector or the node affinity.
    """
    if pod.os is not None and pod.os.name:
        return pod.os.name == "windows"
    if pod.security_context is not None and pod.security_context.windows_options is not None:
        return True
    for key in _OS_LABELS:
        if pod.node_selector and key in pod.node_selector:
            return pod.node_selector[key] == "windows"
    terms = _required_terms(pod)
    return (
        terms is not None
        and terms != []
        and all(
            any(
                r.key in _OS_LABELS
                and (
                    (r.operator == "In" and set(r.values or ()) == {"windows"})
                    or (r.operator == "NotIn" and "linux" in (r.values or ()))
                )
                for r in term.match_expressions or ()
            )
            for term in terms
        )
    )


def any_node_fits(nodes: Iterable[Node], pod: SpecFields) -> bool:
    """Return whether a node matches the pod's nodeName, nodeSelector and required affinity.

    Taints, resources and scheduler scores are ignored, because they can change at any moment.
    An affinity that would take too long to evaluate is ignored too.
    """
    if pod.node_name:
        return any(node.name == pod.node_name for node in nodes)
    terms = _required_terms(pod)
    candidates = nodes if isinstance(nodes, tuple) else tuple(nodes)
    if terms is not None:
        size = _affinity_size(terms)
        if size > _MAX_AFFINITY_SIZE or size * len(candidates) > _MAX_AFFINITY_COMPARISONS:
            return bool(candidates)
    selector = pod.node_selector
    if not selector and terms is None:
        return bool(candidates)
    matchers = [_term_matcher(term) for term in terms] if terms is not None else None
    return any(
        (not selector or selector.items() <= node.labels.items())
        and (matchers is None or any(matches(node) for matches in matchers))
        for node in candidates
    )


def architectures(nodes: Nodes, pod: SpecFields) -> frozenset[str]:
    """Return the architectures of the nodes that a pod could land on.

    If no known node fits, return the architecture in the pod's nodeSelector. Return an empty set if
    one of the architectures is unknown.
    """
    by_label: dict[str, list[Node]] = {}
    for node in nodes.all:
        by_label.setdefault(node.labels.get(_ARCHITECTURE_LABEL, ""), []).append(node)
    fitting = frozenset(
        label for label, group in by_label.items() if any_node_fits(tuple(group), pod)
    )
    if not fitting:
        selected = (pod.node_selector or {}).get(_ARCHITECTURE_LABEL)
        return frozenset({selected}) if selected else frozenset()
    return frozenset() if "" in fitting else fitting


def _required_terms(pod: SpecFields) -> list[NodeSelectorTerm] | None:
    """Return the terms of the pod's required node affinity. None: every node meets it."""
    affinity = pod.affinity.node_affinity if pod.affinity else None
    return affinity.required.node_selector_terms if affinity and affinity.required else None


def _affinity_size(terms: list[NodeSelectorTerm]) -> int:
    """Return the number of terms, requirements and values in an affinity.

    The result is only a lower bound if it exceeds _MAX_AFFINITY_SIZE, because a decision asks a
    dozen times.
    """
    size = len(terms)
    for term in terms:
        for requirements in (term.match_expressions or (), term.match_fields or ()):
            size += len(requirements)
            if size > _MAX_AFFINITY_SIZE:
                return size
            size += sum(len(requirement.values or ()) for requirement in requirements)
    return size


def _term_matcher(term: NodeSelectorTerm) -> Callable[[Node], bool]:
    """Return a predicate that is true for each node that meets one node selector term."""
    try:
        labels = [
            compile_requirement(r.operator, r.key, r.values or ())
            for r in term.match_expressions or ()
        ]
        fields = [
            compile_requirement(r.operator, r.key, r.values or ()) for r in term.match_fields or ()
        ]
    except (ValueError, IndexError):
        # The API server rejects a pod with an invalid requirement after the webhooks have run.
        return lambda _node: False
    if not labels and not fields:
        return lambda _node: False  # An empty term matches no node (core/v1 NodeSelectorTerm).
    return lambda node: (
        all(matches(node.labels) for matches in labels)
        and all(matches({"metadata.name": node.name}) for matches in fields)
    )
