"""Tests of the targets of `podsettle explain`."""

from __future__ import annotations

import pytest

from webhook.cluster.reader import path_of
from webhook.core.reasons import Reason
from webhook.inspect.explain.target import ObjectTarget, TargetError, parse_target


@pytest.mark.parametrize(
    ("text", "kind", "path"),
    [
        ("build-1", "Pod", "/api/v1/namespaces/ci/pods/build-1"),
        ("pod/build-1", "Pod", "/api/v1/namespaces/ci/pods/build-1"),
        ("pods/build-1", "Pod", "/api/v1/namespaces/ci/pods/build-1"),
        ("po/build-1", "Pod", "/api/v1/namespaces/ci/pods/build-1"),
        ("deploy/web", "Deployment", "/apis/apps/v1/namespaces/ci/deployments/web"),
        ("deployment.apps/web", "Deployment", "/apis/apps/v1/namespaces/ci/deployments/web"),
        ("sts/web", "StatefulSet", "/apis/apps/v1/namespaces/ci/statefulsets/web"),
        ("ds/web", "DaemonSet", "/apis/apps/v1/namespaces/ci/daemonsets/web"),
        ("job/web.v1", "Job", "/apis/batch/v1/namespaces/ci/jobs/web.v1"),
    ],
)
def test_object_is_named_as_kubectl_names_it(text: str, kind: str, path: str) -> None:
    target = parse_target(text)
    assert isinstance(target, ObjectTarget)
    assert target.kind.kind == kind
    assert path_of(target.right("ci")) == path


@pytest.mark.parametrize("code", Reason)
def test_every_reason_code_is_a_target_in_its_own_case(code: Reason) -> None:
    assert parse_target(code) is code


def test_reason_code_is_accepted_in_another_case_with_a_capital() -> None:
    assert parse_target("NOCOMMAND") is Reason.NO_COMMAND
    assert parse_target("Nocommand") is Reason.NO_COMMAND


def test_name_without_a_capital_is_a_pod_even_if_a_code_has_these_letters() -> None:
    target = parse_target("nocommand")
    assert isinstance(target, ObjectTarget)
    assert (target.kind.kind, target.name) == ("Pod", "nocommand")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("NoComand", "did you mean NoCommand"),
        ("X" * 100_000, "docs/reasons.md"),
        ("svc/web", "podsettle preview"),
        ("pod/", "not the name of an object"),
        ("pod/a/b", "not the name of an object"),
        ("pod/../x", "not the name of an object"),
        ("pod/A", "not the name of an object"),
        ("", "not the name of an object"),
    ],
)
def test_text_that_names_no_target_is_refused_with_advice(text: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        parse_target(text)
