"""Tests that every error in a SettlePolicy is reported once, with file, line and path."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.factories import policy, policy_document
from webhook.cluster.manifest_loader import load_objects
from webhook.core.policy.model import parse_policy
from webhook.core.policy.validation_errors import InvalidPolicyError, ManifestProblem
from webhook.core.preview.text_objects import iterate_objects

HEAD = """\
apiVersion: podsettle.dev/v1alpha1
kind: SettlePolicy
metadata:
  name: p
spec:
"""
SLEEP = "  remedies:\n    postInitSleep: {}\n"
GLOBS = "  remedies:\n    postInitSleep:\n      initContainers:\n        - "


def problems(text: str) -> tuple[ManifestProblem, ...]:
    found, problems = load_objects(iterate_objects(text.encode(), "p.yaml"))
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
            HEAD.replace("v1alpha1", "v1") + SLEEP,
            "p.yaml:1: apiVersion: is 'podsettle.dev/v1'; podsettle reads podsettle.dev/v1alpha1",
        ),
        (HEAD.removesuffix("spec:\n"), "p.yaml:1: spec: is missing"),
        (HEAD + "  priority: 1\n", "p.yaml:5: spec.remedies: is missing"),
    ],
)
def test_problem_text_names_place_cause_and_remedy(text: str, said: str) -> None:
    assert [str(problem) for problem in problems(text)] == [said]


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


def test_fields_that_the_api_server_adds_are_accepted() -> None:
    document = policy_document()
    document["metadata"] |= {"uid": "u", "managedFields": [{}], "annotations": {"a": "b"}}
    assert parse_policy({**document, "status": {"conditions": []}}).metadata.name == "p"


@pytest.mark.parametrize("document", [None, [], "text", 5, {}])
def test_document_that_is_not_a_mapping_is_not_a_policy(document: Any) -> None:
    with pytest.raises(InvalidPolicyError):
        parse_policy(document)


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
