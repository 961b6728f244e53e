"""A release for each module: tests that only read share it, and the others put it back."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.chart_release import restart
from tests.support.helm_release import (
    ACCOUNT,
    OPT_IN,
    POLICIES,
    RELEASE,
    REQUIRED,
    Installation,
    policy,
    released,
)
from tests.support.kube.cluster import AUDIT_POLICY, Json
from tests.support.paths import CHART
from tests.support.waiting import await_that

AUDITED: Json = {
    **AUDIT_POLICY,
    "rules": [{"level": "Metadata", "users": [ACCOUNT]}, *AUDIT_POLICY["rules"]],
}
"""The audit log has the reads of podsettle's account, too."""


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """A release with the default values, one ready replica and the policy `opt-in`.

    It is for tests that change nothing of it.
    """
    directory = tmp_path_factory.mktemp("release")
    audit_policy = directory / "audit-policy.json"
    audit_policy.write_text(json.dumps(AUDITED))
    with released(directory, api_server=[f"--audit-policy-file={audit_policy}"]) as installation:
        installation.cluster.create(POLICIES, policy("opt-in"))
        yield installation


@pytest.fixture
def changed_release(release: Installation) -> Iterator[Installation]:
    """The same release, for a test that changes values, policies or replicas."""
    before = [*release.replicas]
    yield release
    for each in release.get(POLICIES)["items"]:
        if (name := each["metadata"]["name"]) != "opt-in":
            release.cluster.request("DELETE", f"{POLICIES}/{name}")
    release.helm("upgrade", RELEASE, CHART, "--reset-values", REQUIRED)
    # A replica that the test has started has the arguments of the test's values.
    if release.replicas != before or any(each.has_ended for each in before):
        restart(release)
    await_that(lambda: _has_only_the_first_webhook(release), "the release is as it was")


def _has_only_the_first_webhook(release: Installation) -> bool:
    webhooks = release.webhooks()
    return set(webhooks) == {OPT_IN} and bool(webhooks[OPT_IN]["clientConfig"].get("caBundle"))
