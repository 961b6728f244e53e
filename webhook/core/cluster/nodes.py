"""The nodes of a cluster, and which of them a pod could land on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from webhook.core.defects.versions import (
    IMAGE_VOLUMES_LOCKED_ON,
    IMAGE_VOLUMES_ON_BY_DEFAULT,
    Runtime,
    Version,
    is_affected_by_cri_o_9840,
    mounts_image_volumes,
    mounts_volatile,
    parse_runtime,
    parse_version,
    supports_restart_rules,
)
from webhook.core.labels import compile_requirement
from webhook.core.pod import NodeSelectorTerm, PodSpec

_ARCHITECTURE = "kubernetes.io/arch"
_OS = ("kubernetes.io/os", "beta.kubernetes.io/os")

_MOST_REQUIREMENTS = 500
_MOST_COMPARISONS = 20_000
"""Requirements and their values, and those times nodes: beyond it a pod's affinity is not worth the
time of everybody else's pods. The API server looks at its size after the webhooks only."""


@dataclass(frozen=True, slots=True)
class Node:
    """What podsettle reads of a Node."""

    name: str
    labels: Mapping[str, str]
    runtime: Runtime
    kubelet: Version | None

    @classmethod
    def read(
        cls, name: str, labels: Mapping[str, str], runtime_version: str, kubelet_version: str
    ) -> Node:
        """A node from the texts of its `metadata` and `status.nodeInfo`."""
        return cls(name, labels, parse_runtime(runtime_version), parse_version(kubelet_version))


@dataclass(frozen=True, slots=True)
class Nodes:
    """All nodes of the view. Made once per change; what is asked per pod is worked out here."""

    all: tuple[Node, ...] = ()
    affected_by_cri_o_9840: tuple[Node, ...] = field(init=False, compare=False)
    running_cri_o: tuple[Node, ...] = field(init=False, compare=False)
    without_volatile_mounts: tuple[Node, ...] = field(init=False, compare=False)
    image_volumes_uncertain: tuple[Node, ...] = field(init=False, compare=False)
    without_image_volumes: tuple[Node, ...] = field(init=False, compare=False)
    without_restart_rules: tuple[Node, ...] = field(init=False, compare=False)
    affected_without_restart_rules: tuple[Node, ...] = field(init=False, compare=False)
    newest_kubelet: Version | None = field(init=False, compare=False)

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        known = tuple(nodes)
        object.__setattr__(self, "all", known)
        object.__setattr__(
            self,
            "affected_by_cri_o_9840",
            tuple(n for n in known if is_affected_by_cri_o_9840(n.runtime)),
        )
        crio = tuple(n for n in known if n.runtime.name == "cri-o")
        object.__setattr__(self, "running_cri_o", crio)
        slow = tuple(n for n in known if not mounts_volatile(n.runtime))
        object.__setattr__(self, "without_volatile_mounts", slow)
        for name, least in (
            ("image_volumes_uncertain", IMAGE_VOLUMES_LOCKED_ON),
            ("without_image_volumes", IMAGE_VOLUMES_ON_BY_DEFAULT),
        ):
            lacking = (n for n in known if not mounts_image_volumes(n.kubelet, n.runtime, least))
            object.__setattr__(self, name, tuple(lacking))
        old = tuple(n for n in known if not supports_restart_rules(n.kubelet))
        losing = tuple(n for n in old if is_affected_by_cri_o_9840(n.runtime))
        object.__setattr__(self, "without_restart_rules", old)
        object.__setattr__(self, "affected_without_restart_rules", losing)
        kubelets = (n.kubelet for n in known if n.kubelet is not None)
        object.__setattr__(self, "newest_kubelet", max(kubelets, default=None))

    def may_lose_exit_codes(self, pod: PodSpec) -> bool:
        """Whether a node that the pod could land on reports 255 for quick containers.

        Where no known node fits, the answer is yes: the pod waits for one that nobody knows yet,
        from an autoscaler for example, and a needless sleep costs less than a failed run.
        """
        return any_node_fits(self.affected_by_cri_o_9840, pod) or not any_node_fits(self.all, pod)

    def may_run_cri_o(self, pod: PodSpec) -> bool:
        """Whether the pod could land on a CRI-O node, known or not."""
        return any_node_fits(self.running_cri_o, pod) or not any_node_fits(self.all, pod)

    def may_lack_volatile_mounts(self, pod: PodSpec) -> bool:
        """Whether the pod could land on a node, known or not, that may not mount volatile."""
        return any_node_fits(self.without_volatile_mounts, pod) or not any_node_fits(self.all, pod)

    def mount_image_volumes(self, pod: PodSpec) -> bool:
        """Whether every node that the pod could land on is certain to mount image volumes.

        Where no known node fits, the answer is no. A cordoned node counts: it may be back before
        the pod is scheduled.
        """
        return not any_node_fits(self.image_volumes_uncertain, pod) and any_node_fits(self.all, pod)

    def may_lack_image_volumes(self, pod: PodSpec) -> bool:
        """Whether a known node that the pod could land on does not mount image volumes."""
        return any_node_fits(self.without_image_volumes, pod)

    def may_lack_restart_rules(self, pod: PodSpec, *, among_all: bool) -> bool:
        """Whether a known node that the pod could land on does not follow `restartPolicyRules`.

        Of the nodes that lose exit codes, or of all: the others have no use for them.
        """
        lacking = self.without_restart_rules if among_all else self.affected_without_restart_rules
        return any_node_fits(lacking, pod)


def runs_on_windows(pod: PodSpec) -> bool:
    """Whether the pod says that it runs on Windows, by `os`, nodeSelector or node affinity."""
    if pod.os is not None and pod.os.name:
        return pod.os.name == "windows"
    if pod.security_context is not None and pod.security_context.windows_options is not None:
        return True
    for key in _OS:
        if pod.node_selector and key in pod.node_selector:
            return pod.node_selector[key] == "windows"
    terms = _required_terms(pod)
    return (
        terms is not None
        and terms != []
        and all(
            any(
                r.key in _OS
                and (
                    (r.operator == "In" and set(r.values or ()) == {"windows"})
                    or (r.operator == "NotIn" and "linux" in (r.values or ()))
                )
                for r in term.match_expressions or ()
            )
            for term in terms
        )
    )


def any_node_fits(nodes: Iterable[Node], pod: PodSpec) -> bool:
    """Whether one of the nodes matches the pod's nodeName, nodeSelector and required affinity.

    An affinity that would take too long to evaluate is left out: any of the nodes could run it.

    Taints, resources and what the scheduler weighs are not looked at: they change by the minute.
    """
    if pod.node_name:
        return any(node.name == pod.node_name for node in nodes)
    terms = _required_terms(pod)
    known = nodes if isinstance(nodes, tuple) else tuple(nodes)
    if terms is not None:
        size = _size(terms)
        if size > _MOST_REQUIREMENTS or size * len(known) > _MOST_COMPARISONS:
            return bool(known)
    wanted = pod.node_selector
    if not wanted and terms is None:
        return bool(known)
    matchers = [_matcher(term) for term in terms] if terms is not None else None
    return any(
        (not wanted or wanted.items() <= node.labels.items())
        and (matchers is None or any(matches(node) for matches in matchers))
        for node in known
    )


def architectures(nodes: Nodes, pod: PodSpec) -> frozenset[str]:
    """The architectures of the nodes that a pod could land on; empty where one is not known.

    Where no known node fits, the pod waits for one that nobody knows yet, and what its
    nodeSelector says is all there is to go by.
    """
    by_label: dict[str, list[Node]] = {}
    for node in nodes.all:
        by_label.setdefault(node.labels.get(_ARCHITECTURE, ""), []).append(node)
    found = frozenset(label for label, some in by_label.items() if any_node_fits(tuple(some), pod))
    if not found:
        selected = (pod.node_selector or {}).get(_ARCHITECTURE)
        return frozenset({selected}) if selected else found
    return frozenset() if "" in found else found


def _required_terms(pod: PodSpec) -> list[NodeSelectorTerm] | None:
    affinity = pod.affinity.node_affinity if pod.affinity else None
    return affinity.required.node_selector_terms if affinity and affinity.required else None


def _size(terms: list[NodeSelectorTerm]) -> int:
    return sum(
        1 + len(requirement.values or ())
        for term in terms
        for requirement in (*(term.match_expressions or ()), *(term.match_fields or ()))
    ) + len(terms)


def _matcher(term: NodeSelectorTerm) -> Callable[[Node], bool]:
    try:
        labels = [
            compile_requirement(r.operator, r.key, r.values or ())
            for r in term.match_expressions or ()
        ]
        fields = [
            compile_requirement(r.operator, r.key, r.values or ()) for r in term.match_fields or ()
        ]
    except (ValueError, IndexError):
        # The API server refuses such a pod after the webhooks have run.
        return lambda _node: False
    if not labels and not fields:
        return lambda _node: False  # An empty term matches no node (core/v1 NodeSelectorTerm).
    return lambda node: (
        all(matches(node.labels) for matches in labels)
        and all(matches({"metadata.name": node.name}) for matches in fields)
    )
