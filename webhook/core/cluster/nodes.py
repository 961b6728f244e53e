"""The nodes of a cluster, and which of them a pod could land on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, TypeAlias

from webhook.core.defects.catalogue import DEFECTS
from webhook.core.defects.defect import Defect, DefectStatus
from webhook.core.defects.versions import (
    DOCKER_HUB_RUNTIMES,
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
from webhook.core.pod import (
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodSpec,
    SpecFields,
    WindowsOptions,
)

_ARCHITECTURE_LABEL = "kubernetes.io/arch"
_OS_LABELS = ("kubernetes.io/os", "beta.kubernetes.io/os")
HOSTNAME_LABEL = "kubernetes.io/hostname"
_NAME_FIELD = "metadata.name"
WINDOWS_LABEL = "node.kubernetes.io/windows-build"
"""A label that the kubelet sets only on Windows."""
_NO_OPTIONS = WindowsOptions()

_MAX_AFFINITY_SIZE = 500
"""The maximum number of terms, requirements and values in an affinity. Webhooks run before API
validation, so a client can choose any number. If an affinity is larger, podsettle assumes that
every node meets it."""
_MAX_AFFINITY_COMPARISONS = 50_000
"""The maximum number of requirements in an affinity times the number of nodes. If the product is
larger, podsettle assumes that every node meets the affinity. This many take a few milliseconds."""
_FIRST_NODES = 8
"""Nodes are filtered together, which is faster. The first ones are few: often one of them fits."""
MAX_NODE_SELECTOR_LABELS = 1_000
"""The maximum number of labels in a nodeSelector. No node has that many labels, so a pod with more
of them fits no node. A client can send a hundred thousand."""


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

    @property
    def is_windows(self) -> bool:
        """Whether the node runs Windows. Remedies are for Linux."""
        return self.labels.get(_OS_LABELS[0]) == "windows"

    def status_for(self, defect: Defect) -> DefectStatus:
        """Return whether the node has a defect. Nodes with Windows do not count."""
        if self.is_windows:
            return DefectStatus.NOT_AFFECTED
        return defect.status_on(self.runtime, self.kubelet)

    def software_of(self, defect: Defect) -> str:
        """Return the release of the node that decides whether it has a defect, for messages."""
        if defect.component == "kubelet":
            return f"kubelet {self.kubelet or '?'}"
        return str(self.runtime) if self.runtime.name else "no runtime reported"


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The nodes that are equal in all that decisions read, except in whether a pod fits them."""

    runtime: Runtime
    kubelet: Version | None
    handlers: frozenset[str] | None
    architecture: str
    """The architecture's label. It is empty if the nodes have none."""
    os: str | None
    """The operating system's label."""
    nodes: list[Node] = field(default_factory=list)


class Nodes:
    """All known nodes of the cluster, in the pools that decisions ask about.

    The pools are computed once per change of the nodes, not once per pod.
    """

    def __init__(self, nodes: Iterable[Node] = (), defects: tuple[Defect, ...] = DEFECTS) -> None:
        """`defects` is the catalogue that the pools of affected nodes come from."""
        self.all = tuple(nodes)
        self.defects = defects
        pools: dict[object, Pool] = {}
        for node in self.all:
            labels = node.labels
            architecture, os = labels.get(_ARCHITECTURE_LABEL, ""), labels.get(_OS_LABELS[0])
            key = (node.runtime, node.kubelet, node.handlers, architecture, os)
            pool = pools.get(key)
            if pool is None:
                pool = pools[key] = Pool(*key)
            pool.nodes.append(node)
        self.pools = tuple(pools.values())
        """All known nodes, in their pools."""
        self._by_name = {node.name: (node, pool) for pool in self.pools for node in pool.nodes}
        self._by_remedy = {
            remedy: [
                pool
                for pool in self.pools
                if any(
                    # The nodes of a pool have the same releases and operating system.
                    pool.nodes[0].status_for(each).needs_remedy
                    for each in defects
                    if remedy in each.remedies
                )
            ]
            for remedy in {name for each in defects for name in each.remedies}
        }
        """The pools that have a defect that a remedy cures, by the remedy's name."""
        self._may_lack_image_volumes, self._uncertain_image_volumes = (
            [p for p in self.pools if not mounts_image_volumes(p.kubelet, p.runtime, minimum)]
            for minimum in (IMAGE_VOLUMES_ON_BY_DEFAULT, IMAGE_VOLUMES_LOCKED_ON)
        )
        self._windows = [pool for pool in self.pools if pool.os == "windows"]
        self._others = [pool for pool in self.pools if pool.os != "windows"]
        kubelets = (pool.kubelet for pool in self.pools if pool.kubelet is not None)
        self.newest_kubelet = max(kubelets, default=None)
        self._by_label: dict[tuple[str, str], tuple[Node, ...]] = {}
        """The nodes by the labels that policies name. Few policies name one."""
        self._searches: deque[_Search] = deque(maxlen=2)
        """The last searches. A decision asks a dozen questions about a pod, and about the pod under
        a RuntimeClass that chooses nodes."""

    def __eq__(self, other: object) -> bool:
        """Return whether decisions on the other nodes are the same."""
        if not isinstance(other, Nodes):
            return NotImplemented
        return self.all == other.all and self.defects == other.defects

    __hash__ = None  # type: ignore[assignment]

    def any_fits(self, pod: SpecFields, pools: Iterable[Pool] | None = None) -> bool:
        """Return whether a node matches the pod's nodeName, nodeSelector and required affinity.

        Only the nodes in `pools` count, or all known nodes if it is None. Taints, resources and
        scheduler scores are ignored, because they can change at any moment. An affinity that would
        take too long to evaluate is ignored too.
        """
        return any(map(self._search_for(pod).finds, self.pools if pools is None else pools))

    def all_fit(self, pod: SpecFields, narrowed: SpecFields) -> bool:
        """Return whether each known node that fits a pod also fits another one, and one does."""
        placement = _placement(pod, len(self.all))
        candidates = placement.candidates(self._by_name)
        fitting = _filter(placement)(self.all if candidates is None else candidates)
        also_fitting = _filter(_placement(narrowed, len(self.all)))(fitting)
        return len(also_fitting) == len(fitting) > 0

    def need(self, remedy: str, pod: SpecFields) -> bool:
        """Return whether the pod could land on a node with a defect that the remedy cures.

        This is the question of `when: NodesNeedIt`. If no known node fits, return True. Such a pod
        waits for a node that podsettle does not know, for example from an autoscaler. A needless
        remedy costs less than the defect. Return True as well if the catalogue has no defect that
        the remedy cures, because its purpose is not known.
        """
        affected = self._by_remedy.get(remedy)
        return affected is None or self.any_fits(pod, affected) or not self.any_fits(pod)

    def are_windows(self, pod: SpecFields) -> bool:
        """Return whether every known node that the pod could land on runs Windows.

        The pod may name a pool of such nodes, or one node. If no known node fits, or if no other
        node is known at all, return False.
        """
        # The first condition is for clusters without Windows: this is asked for each review.
        return (
            bool(self._windows and self._others)
            and self.any_fits(pod, self._windows)
            and not self.any_fits(pod, self._others)
        )

    def may_have_label(self, key: str, value: str, pod: SpecFields) -> bool:
        """Return whether the pod could land on a node with a label.

        If no known node fits, return True. Such a pod waits for a node that podsettle does not
        know, for example from an autoscaler.
        """
        labelled = self._by_label.get((key, value))
        if labelled is None:
            labelled = tuple(node for node in self.all if node.labels.get(key) == value)
            self._by_label[key, value] = labelled
        return self._search_for(pod).fits_any(labelled) or not self.any_fits(pod)

    def lacks_handler(self, handler: str, pod: SpecFields) -> bool:
        """Return whether every known node that the pod could land on lacks a runtime handler.

        Nodes with Windows do not count. A node that lists no handlers may have any. If no known
        node fits, return False: the pod waits for a node that podsettle does not know.
        """
        if not handler:
            return False
        fitting = [p for p in self._fitting(pod) if p.os != "windows"]
        return bool(fitting) and not any(
            pool.handlers is None or handler in pool.handlers for pool in fitting
        )

    def mount_image_volumes(self, pod: SpecFields) -> bool:
        """Return whether every node that the pod could land on certainly mounts image volumes.

        A feature gate may switch them off on older nodes. If no known node fits, return False.
        Cordoned nodes count, because a node may be uncordoned before the pod is scheduled.
        """
        return self.any_fits(pod) and not self.any_fits(pod, self._uncertain_image_volumes)

    def may_lack_image_volumes(self, pod: SpecFields) -> bool:
        """Return whether the pod could land on a known node that does not mount image volumes."""
        return self.any_fits(pod, self._may_lack_image_volumes)

    def may_lack_restart_rules(self, pod: SpecFields, *, among_all: bool) -> bool:
        """Return whether the pod could land on a known node without `restartPolicyRules`.

        `among_all` says whether all nodes count. If it is False, only nodes that need the remedy
        retryInitExit255 count, because the other nodes do not need the rules.
        """
        pools = self.pools if among_all else self._by_remedy.get("retryInitExit255", ())
        return self.any_fits(pod, [p for p in pools if not supports_restart_rules(p.kubelet)])

    def take_short_names_from_docker_hub(self, pod: SpecFields) -> bool:
        """Return whether the pod's node certainly takes images without a registry from Docker Hub.

        It does if every node that the pod could land on does. If no known node fits, return False.
        """
        fitting = self._fitting(pod)
        return bool(fitting) and all(p.runtime.name in DOCKER_HUB_RUNTIMES for p in fitting)

    def architectures(self, pod: SpecFields) -> frozenset[str]:
        """Return the architectures of the nodes that a pod could land on.

        If no known node fits, return the architecture in the pod's nodeSelector. Return an empty
        set if one of the architectures is unknown.
        """
        fitting = frozenset(pool.architecture for pool in self._fitting(pod))
        if not fitting:
            selected = (pod.node_selector or {}).get(_ARCHITECTURE_LABEL)
            return frozenset({selected}) if selected else frozenset()
        return frozenset() if "" in fitting else fitting

    def _fitting(self, pod: SpecFields) -> list[Pool]:
        """Return the pools that have a node for the pod."""
        return list(filter(self._search_for(pod).finds, self.pools))

    def _search_for(self, pod: SpecFields) -> _Search:
        """Return a search for a pod that requires the same of its node, or a new one."""
        for search in self._searches:
            if pod is search.pod:
                return search
        placement = _placement(pod, len(self.all))
        for search in self._searches:
            if placement == search.placement:
                break
        else:
            search = _Search(placement, self._by_name)
            self._searches.append(search)
        search.pod = pod
        return search


class _Placement(NamedTuple):
    """What a pod requires of a node's name and labels."""

    node_name: str | None = None
    selector: dict[str, str] | None = None
    terms: list[NodeSelectorTerm] | None = None
    """The terms of the required node affinity. None: every node meets it."""

    def candidates(self, by_name: Mapping[str, tuple[Node, Pool]]) -> list[Node] | None:
        """Return the nodes whose names are required, or None if the names decide nothing.

        The pods of a DaemonSet require one name each, and no two have the same.
        """
        if self.node_name is not None:
            names = [self.node_name]
        else:
            by_term = [_required_names(term) for term in self.terms or ()]
            if not by_term or None in by_term:
                return None
            names = list(dict.fromkeys(chain.from_iterable(filter(None, by_term))))
        return [by_name[name][0] for name in names if name in by_name]


_NOWHERE = _Placement(node_name="")
"""No node has an empty name."""


class _Search:
    """A search for nodes that fit a pod. It evaluates the nodes of a pool at most once."""

    __slots__ = ("_filter", "_found", "_named", "placement", "pod")

    def __init__(self, placement: _Placement, by_name: Mapping[str, tuple[Node, Pool]]) -> None:
        self.placement = placement
        self.pod: SpecFields | None = None
        """The last pod with the placement."""
        self._filter = _filter(placement)
        self._found: dict[Pool, bool] = {}
        candidates = placement.candidates(by_name)
        self._named: dict[str, Pool] | None = None
        """The nodes that fit, by their names, with their pools. None if no names are required."""
        if candidates is not None:
            fitting = self._filter(candidates)
            self._named = {node.name: by_name[node.name][1] for node in fitting}

    def fits_any(self, nodes: Sequence[Node]) -> bool:
        """Return whether one of the nodes fits."""
        if self._named is not None:
            return any(node.name in self._named for node in nodes)
        start, count = 0, _FIRST_NODES
        while start < len(nodes):
            if self._filter(nodes[start : start + count]):
                return True
            start, count = start + count, 4 * count
        return False

    def finds(self, pool: Pool) -> bool:
        """Return whether a node of the pool fits."""
        if self._named is not None:
            return pool in self._named.values()
        found = self._found.get(pool)
        if found is None:
            found = self._found[pool] = self.fits_any(pool.nodes)
        return found


def names_nodes(pod: SpecFields) -> bool:
    """Return whether a pod chooses its nodes by their names, as that of a DaemonSet does."""
    if HOSTNAME_LABEL in (pod.node_selector or ()):
        return True
    terms = _placement(pod, 0).terms or ()
    return bool(terms) and all(
        any(
            each.operator == "In" and each.key in (_NAME_FIELD, HOSTNAME_LABEL)
            for each in (*(term.match_fields or ()), *(term.match_expressions or ()))
        )
        for term in terms
    )


def runs_on_windows(pod: PodSpec) -> bool:
    """Return whether the spec restricts the pod to Windows.

    The spec can do so by `os`, the nodeSelector, `windowsOptions` or the node affinity, in this
    order. Neither the scheduler nor a kubelet of Linux reads `windowsOptions`, and clients also
    write it as an empty object.
    """
    if pod.os is not None and pod.os.name:
        return pod.os.name == "windows"
    selector = pod.node_selector or {}
    for key in _OS_LABELS:
        if key in selector:
            return selector[key] == "windows"
    if WINDOWS_LABEL in selector:
        return True
    for each in (pod, *(pod.init_containers or ()), *(pod.containers or ())):
        security = each.security_context
        if security is not None and security.windows_options not in (None, _NO_OPTIONS):
            return True
    if pod.affinity is None:
        return False  # As most pods.
    terms = _required_terms(pod) or ()
    return bool(terms) and all(
        any(map(_requires_windows, term.match_expressions or ())) for term in terms
    )


def _requires_windows(requirement: NodeSelectorRequirement) -> bool:
    """Return whether only nodes with Windows meet a requirement on labels."""
    operator, values = requirement.operator, requirement.values or ()
    if requirement.key == WINDOWS_LABEL:
        return operator in ("In", "Exists")
    return requirement.key in _OS_LABELS and (
        (operator == "In" and set(values) == {"windows"})
        or (operator == "NotIn" and "linux" in values)
    )


def _required_terms(pod: SpecFields) -> list[NodeSelectorTerm] | None:
    """Return the terms of the pod's required node affinity. None: every node meets it."""
    affinity = pod.affinity.node_affinity if pod.affinity else None
    return affinity.required.node_selector_terms if affinity and affinity.required else None


def _placement(pod: SpecFields, node_count: int) -> _Placement:
    """Return what decides which nodes fit a pod. Its size is limited, because it is compared."""
    if pod.node_name:
        return _Placement(pod.node_name)
    if len(pod.node_selector or ()) > MAX_NODE_SELECTOR_LABELS:
        return _NOWHERE
    terms = _required_terms(pod)
    if terms is not None:
        size, requirements = _affinity_size(terms)
        if size > _MAX_AFFINITY_SIZE or requirements * node_count > _MAX_AFFINITY_COMPARISONS:
            terms = None
    return _Placement(None, pod.node_selector or None, terms)


_Filter: TypeAlias = Callable[[Sequence[Node]], Sequence[Node]]
"""A function that returns those of some nodes that fit."""


def _filter(placement: _Placement) -> _Filter:
    """Return a function that returns the nodes with a placement's name and labels."""
    name, selector, terms = placement
    if name is not None:
        return lambda nodes: [node for node in nodes if node.name == name]
    required = (selector or {}).items()
    filters = None if terms is None else [_term_filter(term) for term in terms]

    def fitting(nodes: Sequence[Node]) -> Sequence[Node]:
        if required:
            nodes = [node for node in nodes if required <= node.labels.items()]
        if filters is None:
            return nodes
        found = {id(node): node for each in filters for node in each(nodes)}
        return tuple(found.values())

    return fitting


def _required_names(term: NodeSelectorTerm) -> tuple[str, ...] | None:
    """Return the names of the nodes that a term allows, or None if it names none."""
    for each in term.match_fields or ():
        if (each.key, each.operator) == (_NAME_FIELD, "In"):
            return each.values or ()
    return None


def _affinity_size(terms: list[NodeSelectorTerm]) -> tuple[int, int]:
    """Return the number of terms, requirements and values, and that of requirements for each node.

    The latter is 0 if all terms require names. Both are only lower bounds if the first one exceeds
    _MAX_AFFINITY_SIZE.
    """
    size, for_each_node, all_named = len(terms), 0, True
    for term in terms[:_MAX_AFFINITY_SIZE]:
        requirements = (*(term.match_expressions or ()), *(term.match_fields or ()))
        size += sum(1 + len(each.values or ()) for each in requirements[: _MAX_AFFINITY_SIZE + 1])
        if size > _MAX_AFFINITY_SIZE:
            break
        for_each_node += len(requirements)
        all_named = all_named and _required_names(term) is not None
    return size, 0 if all_named else for_each_node


def _term_filter(term: NodeSelectorTerm) -> _Filter:
    """Return a function that returns the nodes that meet one node selector term."""
    try:
        labels, fields = (
            [
                compile_requirement(each.operator, each.key, each.values or ())
                for each in group or ()
            ]
            for group in (term.match_expressions, term.match_fields)
        )
    except (ValueError, IndexError):
        # The API server rejects a pod with an invalid requirement after the webhooks have run.
        return lambda _nodes: ()
    if not labels and not fields:
        return lambda _nodes: ()  # An empty term matches no node (core/v1 NodeSelectorTerm).

    def fitting(nodes: Sequence[Node]) -> Sequence[Node]:
        for meets in fields:
            nodes = [node for node in nodes if meets({_NAME_FIELD: node.name})]
        for meets in labels:
            nodes = [node for node in nodes if meets(node.labels)]
        return nodes

    return fitting
