"""Upgrades of a release's values, and its `helm test`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import yaml

from tests.support.chart_release import policy_for_every_namespace
from tests.support.e2e_pods import is_called
from tests.support.helm_release import (
    BY_SELECTOR,
    HOST,
    OPT_IN,
    RELEASE,
    REQUIRED,
    WEBHOOK_TIMEOUT_SECONDS,
    Installation,
)
from tests.support.kube.cluster import Json
from tests.support.paths import CHART
from tests.support.process import free_port
from tests.support.waiting import await_that

pytestmark = pytest.mark.slow


def test_helm_upgrade_keeps_the_fields_that_podsettle_wrote(changed_release: Installation) -> None:
    """The caBundle, the second webhook, the Secret, the Lease; and back to the previous values."""
    release, cluster = changed_release, changed_release.cluster
    namespace = cluster.namespace("wide-")
    with policy_for_every_namespace(release):
        await_that(
            lambda: is_called(cluster, namespace), "a policy for every namespace is in force"
        )
        assert set(release.webhooks()) == {OPT_IN, BY_SELECTOR}
        revision = json.loads(release.helm("status", RELEASE, "--output=json"))["version"]
        before = release.written_by_podsettle()
        assert all(before.values())

        def expect(timeout: int, *excluded: str) -> None:
            opt_in = release.webhooks()[OPT_IN]
            assert opt_in["timeoutSeconds"] == timeout
            for name in excluded:
                assert name in json.dumps(opt_in["namespaceSelector"])
            await_that(
                lambda: _follows(release.webhooks()[BY_SELECTOR], opt_in),
                "the second webhook follows the first",
            )
            assert release.written_by_podsettle() == before
            assert is_called(cluster, namespace)

        notes = release.helm(
            "upgrade", RELEASE, CHART, REQUIRED, "--set=lingerImage=registry.example/linger:2",
            "--set=webhook.timeoutSeconds=3,webhook.excludedNamespaces={kube-system,storage}",
        )  # fmt: skip
        assert "podsettle was upgraded to" in notes
        assert "kubectl get settlepolicies" in notes
        assert "is installed" not in notes
        expect(3, "kube-system", "storage")
        # Helm 3 computes a three-way merge on the client side.
        merged = "--server-side=false"
        release.helm("upgrade", RELEASE, CHART, merged, REQUIRED, "--set=webhook.timeoutSeconds=4")
        expect(4, "kube-public")
        release.helm("rollback", RELEASE, str(revision))
        expect(WEBHOOK_TIMEOUT_SECONDS, "kube-public")
    await_that(lambda: not is_called(cluster, namespace), "podsettle is no longer called")


def _follows(webhook: Json, other: Json) -> bool:
    def excluded(of: Json) -> list[str]:
        (names,) = (
            each["values"]
            for each in of["namespaceSelector"]["matchExpressions"]
            if each["key"] == "kubernetes.io/metadata.name"
        )
        return sorted(names)

    same = all(webhook[key] == other[key] for key in ("timeoutSeconds", "failurePolicy", "rules"))
    return same and excluded(webhook) == excluded(other)


def test_helm_test_fails_while_podsettle_is_not_ready(changed_release: Installation) -> None:
    """The command of the test pod runs in this process instead of a pod."""
    release = changed_release
    release.helm("upgrade", RELEASE, CHART, REQUIRED, "--set=helmTest.enabled=true")
    manifests = release.helm("get", "hooks", RELEASE)
    (pod,) = (each for each in yaml.safe_load_all(manifests) if each)
    _, flag, script, url = pod["spec"]["containers"][0]["command"]
    assert url == f"https://{HOST}/readyz"
    (replica,) = release.replicas

    def ask(port: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, flag, script, url.replace(HOST, f"{release.address}:{port}")],
            capture_output=True,
            text=True,
            check=False,
        )

    asked = ask(replica.port)
    assert (asked.returncode, asked.stdout, asked.stderr) == (0, "ok\n", "")
    refused = ask(free_port())
    assert refused.returncode == 1
    assert "Connection refused" in refused.stderr
    release.helm("upgrade", RELEASE, CHART, REQUIRED)
    assert not release.helm("get", "hooks", RELEASE).strip()
