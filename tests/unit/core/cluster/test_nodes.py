"""Tests of node facts: which nodes fit a pod, and what they support."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.complexity import cpu_ratio, grows_linearly
from tests.support.defects import PINNED, defect, entry
from tests.support.factories import MODERN, node, pod
from tests.support.reviews import make_request
from webhook.cluster.decode import read_node
from webhook.core.cluster.nodes import Node, Nodes
from webhook.core.defects.versions import Version
from webhook.core.pod import PodSpec

if TYPE_CHECKING:
    from _collections_abc import dict_items

AFFECTED, CURED = "cri-o://1.33.12", "cri-o://1.33.13"

LABELS = {"disk": "ssd", "cores": "8"}


def spec(**fields: Any) -> PodSpec:
    return make_request(pod(**fields), "ci").pod.spec


def nodes(*documents: dict[str, Any]) -> Nodes:
    return Nodes((read_node(document) for document in documents), PINNED)


def affinity(*terms: dict[str, Any], kind: str = "required") -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    preferred = {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": term} for term in terms
        ]
    }
    return {"affinity": {"nodeAffinity": required if kind == "required" else preferred}}


def term(key: str, operator: str, *values: str, fields: bool = False) -> dict[str, Any]:
    requirement = {"key": key, "operator": operator, "values": list(values)}
    return {"matchFields" if fields else "matchExpressions": [requirement]}


def could_run(**fields: Any) -> bool:
    return nodes(node("worker-1", labels=LABELS)).any_fits(spec(**fields))


NOWHERE = term("nope", "Exists")["matchExpressions"]


@pytest.mark.parametrize(
    "terms",
    [
        [{"matchExpressions": [*NOWHERE * 600]}],
        [{"matchFields": [*NOWHERE * 600]}],
        [term("nope", "In", *map(str, range(600)))],
        [{"matchExpressions": NOWHERE}] * 600,
    ],
)
def test_an_affinity_with_too_many_requirements_is_ignored(terms: list[dict[str, Any]]) -> None:
    assert could_run(**affinity(*terms))


@pytest.mark.parametrize(
    "terms",
    [
        [{"matchExpressions": NOWHERE * 20}],
        # Names do not narrow the search if another term has none.
        [
            term("metadata.name", "In", "gone", fields=True) | {"matchExpressions": NOWHERE * 20},
            {"matchExpressions": NOWHERE},
        ],
    ],
)
def test_an_affinity_with_too_many_comparisons_is_ignored(terms: list[dict[str, Any]]) -> None:
    wanted = spec(**affinity(*terms))
    few, many = (nodes(*[node(f"n{i}") for i in range(count)]) for count in (100, 10_000))
    assert not few.any_fits(wanted)
    assert many.any_fits(wanted)
    assert not nodes().any_fits(wanted)


def test_a_node_fits_if_the_required_affinity_matches() -> None:
    cases: list[tuple[list[dict[str, Any]], bool]] = [
        ([term("disk", "In", "ssd", "nvme")], True),
        ([term("disk", "In", "hdd")], False),
        ([term("disk", "NotIn", "hdd")], True),
        ([term("gpu", "NotIn", "a100")], True),  # As the scheduler has it: a missing key is not in.
        ([term("disk", "Exists")], True),
        ([term("gpu", "DoesNotExist")], True),
        ([term("cores", "Gt", "4")], True),
        ([term("cores", "Gt")], False),
        ([term("cores", "Near", "8")], False),
        ([term("metadata.name", "In", "worker-1", fields=True)], True),
        ([term("metadata.name", "In", "worker-2", fields=True)], False),
        ([term("metadata.name", "NotIn", "worker-1", fields=True)], False),
        ([term("disk", "In", "hdd"), term("disk", "In", "ssd")], True),  # One term is enough.
        ([term("disk", "In", "ssd") | term("metadata.name", "In", "x", fields=True)], False),
        ([{}], False),
        ([{"matchExpressions": [], "matchFields": None}], False),
        ([], False),
    ]
    assert [(terms, could_run(**affinity(*terms))) for terms, _ in cases] == cases


def test_nodes_are_grouped_by_the_remedies_that_they_need() -> None:
    mixed = nodes(
        node("a", AFFECTED, "v1.33.0"),
        node("b", CURED, "v1.37.0"),
        node("c", "containerd://2.1.5"),
        node("d", "containerd://2.1.5", labels={"kubernetes.io/os": "windows"}),
    )
    assert {
        remedy: [each.name for each in mixed.all if mixed.need(remedy, spec(nodeName=each.name))]
        for remedy in ("postInitSleep", "skipSELinuxRelabel", "runtimeClass", "seLinuxChangePolicy")
    } == {
        "postInitSleep": ["a"],
        "skipSELinuxRelabel": ["a", "b"],
        "runtimeClass": ["c"],
        "seLinuxChangePolicy": ["b"],
    }
    assert mixed.need("noSuchRemedy", spec())


def test_node_with_any_defect_that_a_remedy_cures_needs_the_remedy() -> None:
    """The purpose of the catalogue: one more file, and the question knows the defect."""
    other = defect(entry("2.1.0", component="containerd", newest="2.1.0"))
    both = tuple(
        read_node(document)
        for document in (
            node("crio", AFFECTED, labels={"os": "crio"}),
            node("old", "containerd://2.0.0", labels={"os": "old"}),
            node("new", "containerd://2.1.0", labels={"os": "new"}),
        )
    )
    known, extended = Nodes(both, PINNED), Nodes(both, (*PINNED, other))
    for where, before, after in (("crio", True, True), ("old", False, True), ("new", False, False)):
        placed = spec(nodeSelector={"os": where})
        assert known.need("postInitSleep", placed) is before
        assert extended.need("postInitSleep", placed) is after
    assert known.need("postInitSleep", spec(nodeName="unknown"))
    assert Nodes().need("postInitSleep", spec())
    assert known != extended


def test_only_nodes_that_match_selector_and_affinity_count() -> None:
    crio, other = {"runtime": "crio"}, {"runtime": "other"}
    mixed = nodes(node("a", CURED, labels=crio), node("b", "containerd://2.1.5", labels=other))
    for wanted, on_cri_o, on_other in (
        ({}, True, True),
        ({"nodeSelector": crio}, True, False),
        ({"nodeSelector": other}, False, True),
        (affinity(term("runtime", "In", "crio")), True, False),
        (affinity(term("runtime", "NotIn", "crio")), False, True),
        (affinity(term("runtime", "In", "other"), kind="preferred"), True, True),
        ({"nodeName": "a"}, True, False),
        ({"nodeName": "b"}, False, True),
        ({"nodeName": "unknown"}, True, True),
        ({"nodeSelector": {"runtime": "new"}}, True, True),
    ):
        assert mixed.need("skipSELinuxRelabel", spec(**wanted)) is on_cri_o, wanted
        assert mixed.need("runtimeClass", spec(**wanted)) is on_other, wanted
    assert nodes().need("skipSELinuxRelabel", spec())
    assert nodes().need("runtimeClass", spec())


def test_image_volumes_are_certain_only_if_every_fitting_node_mounts_them() -> None:
    old = node("old", "containerd://1.7.0", "v1.36.0", {"os": "old"})
    assert nodes(MODERN).mount_image_volumes(spec())
    assert not nodes(MODERN, old).mount_image_volumes(spec())
    assert nodes(MODERN, old).mount_image_volumes(spec(nodeName="modern"))


def test_affected_nodes_without_restart_rules_are_reported() -> None:
    old = node("old", AFFECTED, "v1.34.9", {"os": "old"})
    cured = node("cured", CURED, "v1.34.9", {"os": "cured"})
    new = node("new", AFFECTED, "v1.35.0", {"os": "new"})
    mixed = nodes(old, cured, new)
    assert mixed.may_lack_restart_rules(spec(), among_all=False)
    for where, lacks, lacks_among_all in (
        ("old", True, True), ("cured", False, True), ("new", False, False),
    ):  # fmt: skip
        placed = spec(nodeSelector={"os": where})
        assert mixed.may_lack_restart_rules(placed, among_all=False) is lacks
        assert mixed.may_lack_restart_rules(placed, among_all=True) is lacks_among_all
    assert not nodes().may_lack_restart_rules(spec(), among_all=True)


class CountedLabels(dict[str, str]):
    """Labels that count how often they are compared with a nodeSelector."""

    comparisons = 0

    def items(self) -> dict_items[str, str]:
        self.comparisons += 1
        return super().items()


def test_each_node_is_evaluated_once_for_all_questions_about_a_pod() -> None:
    """A tenant can invent nodeSelectors that none of thousands of nodes meets."""
    labels = [CountedLabels(LABELS) for _ in range(50)]
    known = Nodes(
        Node.read(f"n{n}", each, AFFECTED, "v1.33.0", frozenset({f"kata-{n % 3}"}))
        for n, each in enumerate(labels)
    )
    for _ in range(2):
        placed = spec(nodeSelector={**LABELS, "pool": "new"})
        assert known.need("postInitSleep", placed)
        assert known.need("retryInitExit255", placed)
        assert not known.mount_image_volumes(placed)
        assert not known.may_lack_image_volumes(placed)
        assert not known.may_lack_restart_rules(placed, among_all=True)
        assert not known.lacks_handler("kata-1", placed)
        assert known.architectures(placed) == frozenset()
    assert {each.comparisons for each in labels} == {1}
    assert known.any_fits(spec(nodeSelector=LABELS))


def test_pods_that_name_a_node_cost_no_search_of_the_other_nodes() -> None:
    """The DaemonSet controller names another node in each pod, so no search is used twice."""
    labels = [CountedLabels(LABELS) for _ in range(50)]
    known = Nodes(Node.read(f"n{n}", each, AFFECTED, "v1.33.0") for n, each in enumerate(labels))
    for number in range(10):
        named = term("metadata.name", "In", f"n{number}", "gone", fields=True)
        placed = spec(nodeSelector={"disk": "ssd"}, **affinity(named))
        assert known.need("postInitSleep", placed)
        assert known.all_fit(placed, spec(nodeSelector=LABELS, **affinity(named)))
        assert not known.all_fit(placed, spec(nodeSelector={"disk": "hdd"}, **affinity(named)))
    assert {each.comparisons for each in labels[10:]} == {0}
    assert not known.any_fits(spec(**affinity(term("metadata.name", "In", "gone", fields=True))))


def test_pod_and_the_pod_under_a_class_cost_one_search_each() -> None:
    labels = [CountedLabels(LABELS) for _ in range(50)]
    known = Nodes(Node.read(f"n{n}", each, AFFECTED, "v1.33.0") for n, each in enumerate(labels))
    for _ in range(5):
        for pool in ("a", "b"):
            assert not known.any_fits(spec(nodeSelector={"pool": pool}))
    assert {each.comparisons for each in labels} == {2}


def test_values_of_a_requirement_cost_nothing_for_each_node() -> None:
    known = nodes(*(node(f"n{number}", labels={"kind": "x"}) for number in range(10_000)))
    types = [f"t{number}" for number in range(200)]
    assert not known.any_fits(spec(**affinity(term("kind", "In", *types))))


REQUIREMENTS = st.one_of(
    st.builds(
        term,
        st.sampled_from(["disk", "cores", "gpu"]),
        st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
        st.sampled_from(["ssd", "4", "8"]),
    ),
    st.builds(
        lambda operator, names: term("metadata.name", operator, *names, fields=True),
        st.sampled_from(["In", "NotIn"]),
        st.lists(st.sampled_from(["n0", "n7", "n30", "gone"]), min_size=1, max_size=3),
    ),
)
TERMS = st.lists(st.builds(lambda a, b: {**a, **b}, REQUIREMENTS, REQUIREMENTS), max_size=3)
SELECTORS = st.dictionaries(
    st.sampled_from(["disk", "gpu"]), st.sampled_from(["ssd", "hdd"]), max_size=2
)
DOCUMENTS = st.lists(
    st.dictionaries(
        st.sampled_from(["disk", "cores", "gpu"]), st.sampled_from(["ssd", "hdd", "4", "9"])
    ),
    max_size=40,
)


@given(DOCUMENTS, st.none() | TERMS, SELECTORS, SELECTORS)
def test_search_finds_what_a_search_of_each_node_alone_finds(
    labels: list[dict[str, str]],
    terms: list[dict[str, Any]] | None,
    selector: dict[str, str],
    of_class: dict[str, str],
) -> None:
    documents = [node(f"n{number}", labels=each) for number, each in enumerate(labels)]
    known, alone = nodes(*documents), [nodes(each) for each in documents]
    placement = {} if terms is None else affinity(*terms)
    placed = spec(nodeSelector=selector, **placement)
    narrowed = spec(nodeSelector={**selector, **of_class}, **placement)
    fitting = [each for each in alone if each.any_fits(placed)]
    assert known.any_fits(placed) is bool(fitting)
    all_fit = bool(fitting) and all(each.any_fits(narrowed) for each in fitting)
    assert known.all_fit(placed, narrowed) is all_fit


def test_newest_kubelet_is_the_highest_known_version() -> None:
    kubelets = ("v1.34.9", "v1.36.0", "", "v1.35.2")
    found = nodes(*(node(f"n{n}", kubelet=text) for n, text in enumerate(kubelets)))
    assert found.newest_kubelet == Version(1, 36)
    assert nodes(node(kubelet="")).newest_kubelet is None
    assert nodes().newest_kubelet is None


DOZEN = tuple(
    each.model_copy(update={"id": f"{each.id}-{copy}"}) for each in PINNED for copy in (1, 2)
)


def test_time_to_group_nodes_grows_linearly_even_if_no_two_run_the_same_releases() -> None:
    """A dozen defects, and thousands of nodes: each update of a node computes the groups again."""

    def different(count: int) -> list[Node]:
        return [
            Node.read(f"n{n}", {}, f"cri-o://1.{n % 40}.{n}", f"v1.{n % 40}.{n}")
            for n in range(count)
        ]

    assert grows_linearly(different, lambda found: Nodes(found, DOZEN), size=500)


def test_known_releases_cost_no_second_look_up() -> None:
    """Most nodes of a cluster run the same releases."""
    same = [Node.read(f"n{n}", {}, AFFECTED, "v1.33.0") for n in range(5_000)]
    assert cpu_ratio(lambda catalogue: Nodes(same, catalogue), DOZEN, ()) < 4
