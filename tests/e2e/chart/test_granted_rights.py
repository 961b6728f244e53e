"""Rights that a value of the chart grants: to write Events, and to read pull secrets."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from tests.support.chart_release import events_of_podsettle, restart, right
from tests.support.e2e_pods import simple_pod
from tests.support.helm_release import (
    ACCOUNT,
    OWN,
    POLICIES,
    RELEASE,
    REQUIRED,
    Installation,
    policy,
)
from tests.support.paths import CHART
from tests.support.private_registry import private_registry
from tests.support.service_accounts import is_allowed
from tests.support.waiting import await_that

pytestmark = pytest.mark.slow


@pytest.mark.needs("docker-registry")
def test_pull_secrets_are_read_where_a_value_allows_it(
    changed_release: Installation, tmp_path: Path
) -> None:
    """A private image is looked up there, and nowhere else; and no other right is there.

    Its registry has a private CA, which a value names, too.
    """
    release, cluster, ca = changed_release, changed_release.cluster, trustme.CA()
    bundle = {"metadata": {"name": "registry-ca"}, "data": {"ca.crt": ca.cert_pem.bytes().decode()}}
    cluster.create(f"{OWN}/configmaps", bundle)
    trusted = "--set=extraCA.configMap=registry-ca"
    release.helm("upgrade", RELEASE, CHART, REQUIRED, trusted)
    labels = {"podsettle.dev/policy": "private"}
    with private_registry(tmp_path / "registry", ca, "/bin/app") as (image, secret):
        restart(release)
        images = {"lookup": "Registry", "registries": [image.partition("/")[0]]}
        cluster.create(POLICIES, policy("private", imageConfig=images))
        ci, other = (cluster.namespace("private-", labels=labels) for _ in range(2))
        for namespace in (ci, other):
            cluster.create(f"/api/v1/namespaces/{namespace}/secrets", secret)

        def warning(namespace: str, *pull_secrets: str) -> str:
            """Return the warnings of podsettle: "" if the wrapper runs the image's entrypoint."""
            pod = simple_pod("pod", namespace, image=image)
            del pod["spec"]["initContainers"][0]["command"]
            pod["spec"]["imagePullSecrets"] = [{"name": name} for name in pull_secrets]
            status, created, warnings = cluster.create_pod(pod, dry_run=True)
            assert status == 201, created
            (*_, own) = created["spec"]["initContainers"]
            if not warnings:
                # Not covered yet, or wrapped.
                return "" if own.get("command", [""])[-1] == "/bin/app" else "nothing"
            return " ".join(warnings)

        def upgrade(*flags: str) -> None:
            release.helm("upgrade", RELEASE, CHART, REQUIRED, trusted, *flags)

        refused = "pull secret 'registry' may not be read by podsettle"
        for namespace in (ci, other):
            await_that(lambda n=namespace: refused in warning(n, "registry"), "it says so")  # type: ignore[misc]
        assert "service account 'default' may not be read by podsettle" in warning(ci)

        allow = "--set=imageConfig.pullSecrets=true"
        upgrade(allow, f"--set=imageConfig.pullSecretNamespaces={{{ci}}}")
        await_that(lambda: warning(ci, "registry") == "", "the private image is looked up")
        assert refused in warning(other, "registry")
        # Without credentials: a missing Secret is no problem here.
        await_that(lambda: "service account" not in warning(ci), "the account is read")
        assert "ImageConfigUnavailable" in warning(ci)
        assert _granted(release, ci) == {("secrets", "get"), ("serviceaccounts", "get")}
        assert _granted(release, other) == set()

        def read() -> set[tuple[str, str, str]]:
            return {
                right(event)
                for event in events_of_podsettle(release)
                if event.get("objectRef", {}).get("namespace") == ci
                and event["objectRef"]["resource"] != "namespaces"
                and event["responseStatus"]["code"] == 200
            }

        await_that(lambda: len(read()) == 2, "the audit log has both")
        assert read() == {("", "secrets", "get"), ("", "serviceaccounts", "get")}

        upgrade(allow)
        await_that(lambda: warning(other, "registry") == "", "it is looked up everywhere")
        assert _granted(release, "kube-system") == _granted(release, ci)
        upgrade()
        await_that(lambda: _granted(release, ci) == set(), "the right is taken back")


def _granted(release: Installation, namespace: str) -> set[tuple[str, str]]:
    """Return what RBAC allows the account for Secrets and ServiceAccounts of others."""

    def may(resource: str, verb: str) -> bool:
        asked = {"namespace": namespace, "verb": verb, "resource": resource, "name": "any"}
        return is_allowed(release.cluster, ACCOUNT, {"resourceAttributes": asked})

    verbs = ("get", "list", "watch", "create", "update", "patch", "delete")
    return {
        (resource, verb)
        for resource in ("secrets", "serviceaccounts")
        for verb in verbs
        if may(resource, verb)
    }
