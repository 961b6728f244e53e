"""Tests of the targets of `podsettle explain`."""

from __future__ import annotations

import pytest

from webhook.cluster.reader import path_of
from webhook.cluster.rights import Right
from webhook.core.reasons import Reason
from webhook.core.remedies import REMEDIES
from webhook.inspect.explain.target import (
    ObjectTarget,
    TargetError,
    parse_target,
)


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
        ("deployments.apps/web", "Deployment", "/apis/apps/v1/namespaces/ci/deployments/web"),
        ("deployments.v1.apps/web", "Deployment", "/apis/apps/v1/namespaces/ci/deployments/web"),
        ("cronjob/nightly", "CronJob", "/apis/batch/v1/namespaces/ci/cronjobs/nightly"),
        ("cj/nightly", "CronJob", "/apis/batch/v1/namespaces/ci/cronjobs/nightly"),
        ("cronjobs.batch/nightly", "CronJob", "/apis/batch/v1/namespaces/ci/cronjobs/nightly"),
        ("pod/nocommand", "Pod", "/api/v1/namespaces/ci/pods/nocommand"),
        ("pod/wrapper", "Pod", "/api/v1/namespaces/ci/pods/wrapper"),
    ],
)
def test_object_is_named_as_kubectl_names_it(text: str, kind: str, path: str) -> None:
    target = parse_target(text)
    assert isinstance(target, ObjectTarget)
    assert target.kind == kind
    assert path_of(Right("get", target.group, f"{kind.lower()}s", "ci", target.name)) == path


def test_name_in_the_path_of_a_right_is_quoted() -> None:
    proxy = Right("get", "", "pods", "ci", "a/b", "proxy")
    assert path_of(proxy) == "/api/v1/namespaces/ci/pods/a%2Fb/proxy"


def test_reason_code_remedy_and_defect_are_accepted_in_any_case() -> None:
    for code in Reason:
        assert parse_target(code) is parse_target(code.lower()) is code
    for name in REMEDIES:
        assert parse_target(name) == parse_target(name.upper()) == name
    for name in ("wrapper", "cri-o-9840", "missing-handler", "not-settled", "selinux-mount"):
        assert parse_target(name) == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("NoComand", "did you mean NoCommand"),
        ("PostInitSlep", "did you mean postInitSleep"),
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
