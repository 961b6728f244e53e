"""The pure parts of doctor's checks. tests/e2e/inspect runs the checks on a cluster."""

from __future__ import annotations

import json
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.factories import policy
from webhook.cluster.reader import path_of
from webhook.cluster.rights import Right
from webhook.core.cluster.nodes import Node
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.inspect.doctor.checks.configuration import exclusion_operations
from webhook.inspect.doctor.checks.helper_image import waiting_states
from webhook.inspect.doctor.checks.policies import judge_handler
from webhook.inspect.doctor.checks.reachability import count_failures, judge_counts
from webhook.inspect.doctor.model import State
from webhook.inspect.doctor.round_readings import ReadinessLine, parse_readiness
from webhook.inspect.installation import Installation
from webhook.inspect.selectors import matching_labels, selector_matches

NAME = "kubernetes.io/metadata.name"


def test_lines_of_readyz_are_read_with_their_marks_and_notes() -> None:
    text = (
        "[+]nodes ok\n[!]policies in force SettlePolicy/a: bad\n"
        "[-]registration host: [SSL] no CA\nreadyz check failed\n"
    )
    assert parse_readiness(text) == (
        ReadinessLine("+", "nodes", "ok"),
        ReadinessLine("!", "policies in force", "SettlePolicy/a: bad"),
        ReadinessLine("-", "registration", "host: [SSL] no CA"),
    )
    assert parse_readiness('{"kind": "Status"}') == ()


def test_counters_of_the_api_server_are_summed_over_podsettles_webhooks() -> None:
    metrics = """\
# HELP apiserver_admission_webhook_fail_open_count [ALPHA] x
apiserver_admission_webhook_fail_open_count{name="opt-in.podsettle.dev",type="admit"} 3
apiserver_admission_webhook_fail_open_count{name="x.cluster.podsettle.dev",type="admit"} 1e+01
apiserver_admission_webhook_fail_open_count{name="other.example.com",type="admit"} 7
apiserver_admission_webhook_rejection_count{error_type="calling_webhook_error",name="opt-in.podsettle.dev",operation="CREATE",rejection_code="0",type="admit"} 2
apiserver_admission_webhook_request_total{name="opt-in.podsettle.dev"} 100
"""  # noqa: E501
    assert count_failures(metrics) == {"fail_open": 13, "rejection": 2}
    assert count_failures("") == {"fail_open": 0, "rejection": 0}


@pytest.mark.parametrize(
    ("missed", "refused", "cause", "state", "commands"),
    [
        (0, 0, "", State.OK, []),
        (3, 0, "", State.WARNING, ["podsettle scan"]),
        (0, 2, "", State.WARNING, []),
        (3, 2, "", State.WARNING, ["podsettle scan"]),
        (3, 2, "no replica is ready", State.FAULT, ["kubectl delete", "helm upgrade"]),
    ],
)
def test_refused_pods_are_a_fault_only_while_more_may_be_refused(
    missed: int, refused: int, cause: str, state: State, commands: list[str]
) -> None:
    installation = Installation("system", "settle", {}, {"metadata": {}})
    found = judge_counts({"fail_open": missed, "rejection": refused}, cause, installation)
    assert found.state is state
    printed = found.advice.commands if found.advice else ()
    assert [" ".join(program[:2]) for (program,) in printed] == commands
    assert cause in found.result


@pytest.mark.parametrize(
    ("right", "path"),
    [
        (Right("list", "", "pods", "ci"), "/api/v1/namespaces/ci/pods"),
        (Right("get", "", "namespaces", name="a/b"), "/api/v1/namespaces/a%2Fb"),
        (
            Right("get", "", "pods", "ci", "x", "proxy"),
            "/api/v1/namespaces/ci/pods/x/proxy",
        ),
        (
            Right("list", "podsettle.dev", "settlepolicies"),
            "/apis/podsettle.dev/v1alpha1/settlepolicies",
        ),
    ],
)
def test_path_of_a_right_is_that_of_its_objects(right: Right, path: str) -> None:
    assert path_of(right) == path


SELECTORS: tuple[Any, ...] = (
    None,
    {},
    {"matchLabels": {"a": "b"}},
    {"matchExpressions": []},
    {"matchExpressions": [{"key": "x", "operator": "Exists"}]},
    {"matchExpressions": [{"key": NAME, "operator": "In", "values": ["own"]}]},
    {
        "matchExpressions": [
            {"key": "x", "operator": "DoesNotExist"},
            {"key": NAME, "operator": "NotIn", "values": ["other"]},
        ]
    },
)


@pytest.mark.parametrize("selector", SELECTORS)
def test_generated_patch_excludes_the_namespace_and_keeps_the_rest(selector: Any) -> None:
    webhook = {"name": "opt-in.podsettle.dev"}
    if selector is not None:
        webhook["namespaceSelector"] = selector
    document = {"webhooks": [{"name": "other"}, webhook]}
    patched = jsonpatch.apply_patch(document, exclusion_operations(1, webhook, "own"))
    changed = patched["webhooks"][1].pop("namespaceSelector")
    assert not selector_matches(changed, {NAME: "own", "a": "b", "x": "y"})
    assert not selector_matches(changed, {NAME: "own"})
    for labels in ({NAME: "third", "a": "b"}, {NAME: "third", "x": "y"}, {NAME: "other"}):
        assert selector_matches(changed, labels) == selector_matches(selector, labels)
    moved = {"webhooks": [webhook, {"name": "other"}]}
    with pytest.raises(jsonpatch.JsonPatchTestFailed):
        jsonpatch.apply_patch(moved, exclusion_operations(1, webhook, "own"))


KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.sampled_from(["1", "2", "3"])


@given(
    labels=st.dictionaries(KEYS, VALUES),
    keys=st.lists(st.tuples(KEYS, st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]))),
)
def test_labels_are_found_for_a_selector_that_an_object_matches(
    labels: dict[str, str], keys: list[tuple[str, str]]
) -> None:
    """At most one requirement for each key, as the values of In are alternatives."""
    expressions = []
    for key, operator in dict(keys).items():
        value = labels.get(key, "1")
        values = {"In": [value, "3"], "NotIn": ["0"]}.get(operator)
        if operator == "DoesNotExist":
            labels.pop(key, None)
        expressions.append(
            {"key": key, "operator": operator, **({"values": values} if values else {})}
        )
    selector = {"matchExpressions": expressions}
    assert selector_matches(selector, matching_labels(selector))
    exact = {**selector, "matchLabels": labels}
    if selector_matches(exact, labels):
        assert selector_matches(exact, matching_labels(exact))


def node(name: str, handlers: list[str] | None, **labels: str) -> Node:
    return Node.read(
        name, labels, "cri-o://1.33.5", "v1.33.5", frozenset(handlers) if handlers else None
    )


def windows_node(handlers: list[str] | None) -> Node:
    return node("w", handlers, pool="x", **{"kubernetes.io/os": "windows"})


@pytest.mark.parametrize(
    ("nodes", "state"),
    [
        ([], State.UNKNOWN),
        ([node("a", ["runc"], pool="other")], State.UNKNOWN),
        ([node("a", None, pool="x")], State.UNKNOWN),
        ([node("a", ["runc"], pool="x"), node("b", None, pool="x")], State.UNKNOWN),
        ([node("a", ["runc"], pool="x"), node("b", ["kata"], pool="other")], State.FAULT),
        ([node("a", ["runc"], pool="x"), node("b", ["kata"], pool="x")], None),
        ([node("a", ["kata"], pool="x"), node("b", None, pool="x")], None),
        ([node("a", ["runc"], pool="x"), windows_node(None)], State.FAULT),
        ([node("a", ["runc"], pool="x"), windows_node(["kata"])], State.FAULT),
    ],
)
def test_handler_is_missing_only_if_every_node_of_the_class_lists_others(
    nodes: list[Node], state: State | None
) -> None:
    chosen = policy(remedies={"runtimeClass": {"name": "kata-class"}})
    runtime_class = RuntimeClassInfo("kata-class", "kata", node_selector={"pool": "x"})
    results = list(judge_handler(chosen, runtime_class, nodes))
    assert [each.state for each in results] == ([] if state is None else [state])
    if state is State.FAULT:
        (result,) = results
        assert result.advice is not None
        ((program,),) = result.advice.commands
        assert json.loads(program[-1]) == {"spec": {"action": "Audit"}}


@pytest.mark.parametrize(
    ("name", "image", "waits"),
    [
        ("podsettle-linger", "registry.example/linger:1", True),
        ("podsettle-linger", "registry.example/linger:0", False),
        ("other", "registry.example/linger:1", False),
    ],
)
def test_pod_waits_for_the_helper_only_if_it_has_the_image_of_today(
    name: str, image: str, waits: bool
) -> None:
    state = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
    pod = {
        "spec": {"initContainers": [{"name": name, "image": image}]},
        "status": {"initContainerStatuses": [{"name": name, "state": {"waiting": state}}]},
    }
    assert waiting_states(pod, "registry.example/linger:1") == ([state] if waits else [])
