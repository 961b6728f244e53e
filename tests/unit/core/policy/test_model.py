"""Tests that every error in a SettlePolicy is reported once, with file, line and path."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.factories import policy, policy_document
from webhook.cluster.manifest_loader import parse_manifest
from webhook.core.policy.model import is_policy, parse_policy
from webhook.core.policy.validation_errors import FieldError, InvalidPolicyError, ManifestProblem

HEAD = """\
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata:
  name: p
spec:
"""
SLEEP = "  remedies:\n    postInitSleep: {}\n"
EXPRESSION = "  podSelector:\n    matchExpressions:\n      - "
GLOBS = "  remedies:\n    postInitSleep:\n      initContainers:\n        - "


def problems(text: str) -> tuple[ManifestProblem, ...]:
    found, problems = parse_manifest(text.encode(), "p.yaml")
    assert not (found and problems)
    return problems


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            HEAD + "  remedies:\n    postInitSleep:\n      minLifeTime: 5s\n",
            "p.yaml:8: spec.remedies.postInitSleep.minLifeTime: "
            "unknown key; did you mean minLifetime?",
        ),
        (
            HEAD + "  whatever: 1\n" + SLEEP,
            "p.yaml:6: spec.whatever: unknown key; known are action, description, "
            "imageConfig, namespaceSelector, podSelector, priority, remedies",
        ),
        (
            HEAD + "  priority: high\n" + SLEEP,
            "p.yaml:6: spec.priority: is a string, should be a whole number",
        ),
        (
            HEAD + "  remedies:\n    postInitSleep:\n      sleep: 10\n",
            "p.yaml:8: spec.remedies.postInitSleep.sleep: "
            "10 is not a duration: write it as 10ms, 1.5s or 1m30s",
        ),
        (
            HEAD + GLOBS + "ok\n        - 'Bad[a]'\n",
            "p.yaml:10: spec.remedies.postInitSleep.initContainers[1]: 'Bad[a]' can match no "
            "container name: use a-z, 0-9, '-', and '*' or '?' as wildcards",
        ),
        (
            HEAD + "  remedies:\n    runtimeClass: {name: a}\n"
            "    skipSELinuxRelabel:\n      runtimeClassName: b\n",
            "p.yaml:9: spec.remedies.skipSELinuxRelabel.runtimeClassName: "
            "a pod has only one RuntimeClass: this is b, but runtimeClass.name is a",
        ),
        (
            HEAD + "  remedies:\n    retryInitExit255:\n      initContainers: ['prep*']\n",
            "p.yaml:8: spec.remedies.retryInitExit255.initContainers[0]: 'prep*' is not a "
            "container's name: list each by its name, without wildcards, because its work runs "
            "again",
        ),
        (
            HEAD + "  remedies:\n    retryInitExit255:\n      initContainers: []\n",
            "p.yaml:8: spec.remedies.retryInitExit255.initContainers: "
            "is empty; it takes at least one",
        ),
        (
            HEAD + "  remedies:\n    kubeletGate: {timeout: 0s}\n",
            "p.yaml:7: spec.remedies.kubeletGate.timeout: "
            "timeout is 0: leave the remedy out instead",
        ),
        (
            HEAD + "  remedies:\n    seLinuxChangePolicy: MountOption\n",
            "p.yaml:7: spec.remedies.seLinuxChangePolicy: is 'MountOption'; it can be 'Recursive'",
        ),
        (
            HEAD + "  remedies:\n    seLinuxChangePolicy: On\n",
            "p.yaml:7: spec.remedies.seLinuxChangePolicy: is true or false, should be 'Recursive'",
        ),
        (
            HEAD.replace("v1alpha1", "v1") + SLEEP,
            "p.yaml:1: apiVersion: is 'podsettle.dev/v1'; podsettle reads podsettle.dev/v1alpha1",
        ),
        (HEAD.removesuffix("spec:\n"), "p.yaml:1: spec: is missing"),
        (HEAD + "  priority: 1\n", "p.yaml:5: spec.remedies: is missing"),
        (
            HEAD + "  remedies: {}\n",
            "p.yaml:6: spec.remedies: no remedy is set: name at least one",
        ),
        (
            HEAD + EXPRESSION + "{key: a, operator: Is}\n" + SLEEP,
            "p.yaml:8: spec.podSelector.matchExpressions[0].operator: "
            "is 'Is'; it can be 'In', 'NotIn', 'Exists' or 'DoesNotExist'",
        ),
        (
            HEAD + EXPRESSION + "{key: a, operator: In}\n" + SLEEP,
            "p.yaml:8: spec.podSelector.matchExpressions[0]: operator In needs values",
        ),
    ],
)
def test_problem_text_names_place_cause_and_remedy(text: str, said: str) -> None:
    assert [str(problem) for problem in problems(text)] == [said]


@pytest.mark.parametrize(
    ("text", "line", "path", "word"),
    [
        ("  remedies:\n    postInitSleeep: {}\n", 7, "spec.remedies.postInitSleeep", "mean postIn"),
        ("  action: Enforce\n" + SLEEP, 6, "spec.action", "'Mutate' or 'Audit'"),
        ("  priority: true\n" + SLEEP, 6, "spec.priority", "whole number"),
        ("  priority: 1.5\n" + SLEEP, 6, "spec.priority", "whole number"),
        ("  priority: 99999999999\n" + SLEEP, 6, "spec.priority", "less than"),
        ("  description: [a]\n" + SLEEP, 6, "spec.description", "a list, should be a string"),
        ("  remedies: []\n", 6, "spec.remedies", "should be a mapping"),
        ("  remedies:\n    postInitSleep: yes\n", 7, "spec.remedies.postInitSleep", "mapping"),
        (GLOBS[:-11] + " prepare\n", 8, "spec.remedies.postInitSleep.initContainers", "a list"),
        (GLOBS + "5\n", 9, "spec.remedies.postInitSleep.initContainers[0]", "should be a string"),
        (
            "  remedies:\n    postInitSleep:\n      sleep: 2h\n",
            8, "spec.remedies.postInitSleep.sleep", "longer than 1m",
        ),
        (
            "  remedies:\n    postInitSleep:\n      sleep: 1 s\n",
            8, "spec.remedies.postInitSleep.sleep", "is not a duration",
        ),
        (
            "  remedies:\n    postInitSleep: {sleep: 0s, minLifetime: 0s}\n",
            7, "spec.remedies.postInitSleep", "both 0",
        ),
        (
            "  remedies:\n    postInitSleep: {initContainers: []}\n",
            7, "spec.remedies.postInitSleep", "both empty, so nothing is wrapped",
        ),
        (
            "  remedies:\n    postInitSleep: {delivery: Magic}\n",
            7, "spec.remedies.postInitSleep.delivery", "'Shell'",
        ),
        (
            "  remedies:\n    runtimeClass: {}\n",
            7, "spec.remedies.runtimeClass.name", "is missing",
        ),
        (
            "  remedies:\n    runtimeClass: {name: A_b}\n",
            7, "spec.remedies.runtimeClass.name", "not a valid name",
        ),
        (EXPRESSION + "{operator: Exists}\n" + SLEEP,
         8, "spec.podSelector.matchExpressions[0].key", "is missing"),
        (EXPRESSION + "{key: a, operator: Exists, values: [b]}\n" + SLEEP,
         8, "spec.podSelector.matchExpressions[0]", "takes no values"),
        (EXPRESSION + "{key: a, operator: In, values: [b c]}\n" + SLEEP,
         8, "spec.podSelector.matchExpressions[0].values[0]", "'b c' is not a label value"),
        (EXPRESSION + "{key: a b, operator: Exists}\n" + SLEEP,
         8, "spec.podSelector.matchExpressions[0].key", "'a b' is not a label key"),
        ("  podSelector:\n    matchLabels:\n      'a b': c\n" + SLEEP,
         8, "spec.podSelector.matchLabels.a b", "'a b' is not a label key"),
        ("  podSelector:\n    matchLabels:\n      a: b c\n" + SLEEP,
         8, "spec.podSelector.matchLabels.a", "'b c' is not a label value"),
        ("  podSelector:\n    matchLabels:\n      a: on\n" + SLEEP,
         8, "spec.podSelector.matchLabels.a", "is true or false, should be a string"),
        ("  podSelector:\n" + SLEEP, 6, "spec.podSelector", "is empty, should be a mapping"),
    ],
)  # fmt: skip
def test_each_mistake_in_a_spec_is_one_problem_with_line_and_path(
    text: str, line: int, path: str, word: str
) -> None:
    (problem,) = problems(HEAD + text)
    assert (problem.source, problem.line, problem.path) == ("p.yaml", line, path)
    assert word in problem.message


@pytest.mark.parametrize(
    ("head", "line", "path"),
    [
        (HEAD.replace("name: p", "name: P_p"), 4, "metadata.name"),
        (HEAD.replace("name: p", "name: 5"), 4, "metadata.name"),
        (HEAD.replace("name: p", "labels: {}"), 3, "metadata.name"),
        (HEAD.replace("\n  name: p", ""), 3, "metadata"),
        (HEAD.replace("kind: SettlePolicy", "kind: SettlePolicies"), 2, "kind"),
        (HEAD.replace("apiVersion: podsettle.dev/v1alpha1\n", ""), 1, "apiVersion"),
        ("extra: 1\n" + HEAD, 1, "extra"),
    ],
)
def test_each_mistake_outside_the_spec_is_one_problem_with_line_and_path(
    head: str, line: int, path: str
) -> None:
    (problem,) = problems(head + SLEEP)
    assert (problem.line, problem.path) == (line, path)


@pytest.mark.parametrize(
    ("remedy", "write"),
    [
        ("postInitSleep", "write {} for the defaults"),
        ("kubeletGate", "write {} for the defaults"),
        ("skipSELinuxRelabel", "write {} for the defaults"),
        ("runtimeClass", "it has settings without a default"),
        ("retryInitExit255", "it has settings without a default"),
        ("seLinuxChangePolicy", "write Recursive"),
    ],
)
def test_empty_remedy_is_a_problem(remedy: str, write: str) -> None:
    (problem,) = problems(HEAD + f"  remedies:\n    {remedy}:\n")
    assert (problem.path, problem.message) == (f"spec.remedies.{remedy}", f"is empty; {write}")


def test_all_problems_are_reported_at_once() -> None:
    found = problems(HEAD + "  priority: high\n  action: Enforce\n  remedies: {}\n")
    assert [problem.path for problem in found] == ["spec.priority", "spec.action", "spec.remedies"]


def test_valid_policy_has_the_defaults_of_the_contract() -> None:
    spec = parse_policy(
        {
            **policy_document(),
            "spec": {"remedies": {"postInitSleep": {}, "skipSELinuxRelabel": {}}},
        }
    ).spec
    sleep, relabel = spec.settings()["postInitSleep"], spec.settings()["skipSELinuxRelabel"]
    assert (spec.priority, spec.action, spec.namespace_selector) == (0, "Mutate", None)
    assert (sleep.when, sleep.delivery) == ("NodesNeedIt", "Auto")
    assert (sleep.min_lifetime, sleep.sleep) == (500, 10)
    assert (sleep.init_containers, sleep.containers) == (("*",), ())
    assert (relabel.pods, relabel.runtime_class_name) == ("WithPersistentVolumes", None)


def test_two_remedies_with_the_same_class_are_valid() -> None:
    agreed = {"runtimeClass": {"name": "a"}, "skipSELinuxRelabel": {"runtimeClassName": "a"}}
    assert policy(remedies=agreed).spec.settings().keys() == agreed.keys()


def test_fields_that_the_api_server_adds_are_accepted() -> None:
    document = policy_document()
    document["metadata"] |= {"uid": "u", "managedFields": [{}], "annotations": {"a": "b"}}
    assert parse_policy({**document, "status": {"conditions": []}}).metadata.name == "p"


@pytest.mark.parametrize("document", [None, [], "text", 5, {}])
def test_document_that_is_not_a_mapping_is_not_a_policy(document: Any) -> None:
    assert not is_policy(document)
    with pytest.raises(InvalidPolicyError):
        parse_policy(document)


def test_error_without_a_path_reads_as_its_message() -> None:
    assert str(FieldError((), "is odd")) == "is odd"
    assert str(FieldError(("spec", "a", 0, "b"), "is odd")) == "spec.a[0].b: is odd"


def test_policies_share_default_values() -> None:
    one, other = policy("a").spec, policy("b").spec
    assert one.pod_selector is other.pod_selector
    assert one.image_config is other.image_config


def test_equal_selectors_have_equal_hashes() -> None:
    spec: dict[str, Any] = {
        "podSelector": {"matchLabels": {"a": "1", "b": "2"}},
        "imageConfig": {"lookup": "Registry", "mirrors": {"a.example": "b.example"}},
    }
    one, other = policy("a", **spec).spec, policy("b", **spec).spec
    assert one.pod_selector == other.pod_selector
    assert hash(one.pod_selector) == hash(other.pod_selector)
    assert one.image_config == other.image_config
    assert hash(one.image_config) == hash(other.image_config)
