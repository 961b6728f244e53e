"""Faults of the objects that podsettle depends on, made by hand."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.faults.rig import LEASE, POLICY, SECRET, Rig
from tests.faults.scenario import Loss, Steps, scenario
from tests.support.helm_release import CONFIGURATION, POLICIES
from tests.support.paths import CHART

_CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/settlepolicies.podsettle.dev"
_SECRET_SECONDS = 40
"""podsettle reads the Secret every 30 s."""
_EMPTY = [{"op": "remove", "path": "/data"}]


@scenario("the Lease is given to another holder by hand, so that no replica leads", seconds=20)
def lease_given_away(rig: Rig) -> Steps:
    """Write another holder into the Lease, which then does not renew it."""
    yield
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    spec = {"holderIdentity": "faults", "renewTime": now, "acquireTime": now}
    rig.request("PATCH", LEASE, {"spec": spec})
    yield


@scenario("the Secret with the certificate is deleted by hand", seconds=_SECRET_SECONDS)
def secret_deleted(rig: Rig) -> Steps:
    """Delete the Secret, and create it as `helm upgrade` does: empty."""
    yield
    rig.request("DELETE", SECRET)
    yield
    path, _, name = SECRET.rpartition("/")
    rig.request("POST", path, {"metadata": {"name": name}})


@scenario("the private key in the Secret is overwritten by hand", seconds=_SECRET_SECONDS)
def secret_corrupted(rig: Rig) -> Steps:
    """Write rubbish into the Secret."""
    yield
    rig.request("PATCH", SECRET, {"data": {"tls.key": "cnViYmlzaA=="}})
    yield


@scenario("the CA is replaced: the Secret is emptied by hand", seconds=_SECRET_SECONDS)
def ca_replaced(rig: Rig) -> Steps:
    """Remove all data of the Secret."""
    yield
    rig.request("PATCH", SECRET, _EMPTY)
    yield


@scenario(
    "the caBundles of the webhook configuration are removed by hand", loss=Loss.WHILE_IT_LASTS
)
def ca_bundle_removed(rig: Rig) -> Steps:
    """Remove what the API server trusts."""
    yield
    webhooks = rig.request("GET", CONFIGURATION).body["webhooks"]
    paths = [f"/webhooks/{number}/clientConfig/caBundle" for number in range(len(webhooks))]
    rig.request("PATCH", CONFIGURATION, [{"op": "remove", "path": path} for path in paths])
    yield


@scenario("the webhook configuration is deleted by hand", loss=Loss.WHILE_IT_LASTS)
def configuration_deleted(rig: Rig) -> Steps:
    """Delete the configuration, and create it as `helm upgrade` does."""
    yield
    made = rig.request("GET", CONFIGURATION).body
    rig.request("DELETE", CONFIGURATION)
    yield
    path, _, name = CONFIGURATION.rpartition("/")
    (opt_in,) = (each for each in made["webhooks"] if each["name"].startswith("opt-in"))
    opt_in["clientConfig"].pop("caBundle", None)
    labels = made["metadata"].get("labels", {})
    rig.request("POST", path, {"metadata": {"name": name, "labels": labels}, "webhooks": [opt_in]})


@scenario("the CRD is deleted by hand, and all policies with it", loss=Loss.WHILE_IT_LASTS)
def crd_deleted(rig: Rig) -> Steps:
    """Delete the CRD, and install it and the policy again."""
    yield
    rig.request("DELETE", _CRD)
    yield
    done = rig.cluster.kubectl("apply", "--server-side", "-f", CHART / "crds")
    assert done.returncode == 0, done.stderr
    rig.create_policy()


@scenario("the policy is edited 1,000 times, in 10 s if the machine can", seconds=0)
def policy_edits(rig: Rig) -> Steps:
    """Change the duration that the policy names."""
    yield

    def edit(number: int) -> None:
        remedy = {"minLifetime": f"{500 + number}ms"}
        rig.request(
            "PATCH", f"{POLICIES}/{POLICY}", {"spec": {"remedies": {"postInitSleep": remedy}}}
        )

    rig.in_parallel(edit, 1000, seconds=10)
    yield
