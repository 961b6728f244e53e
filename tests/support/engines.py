"""One API server on which podsettle's webhook and native policies settle pods in turn.

Each set of policies has four namespaces: the webhook settles pods in one, native policies in
another, both in the third, and nothing in the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.support.e2e_pods import HEAVY, simple_pod
from tests.support.factories import node
from tests.support.kube.cluster import Json, KubeCluster
from tests.support.kube.fixtures import prepare_for_fixture_pods
from tests.support.native_policies import API_VERSION, in_force
from tests.support.paths import EXAMPLES
from tests.support.process import start_server
from tests.support.registered_webhook import registered
from tests.support.reviews import PODS, load_pod
from tests.support.waiting import await_that
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.core.export.native_policies import export
from webhook.core.policy.cluster_webhooks import cluster_webhooks
from webhook.core.policy.webhook_selectors import webhook_selectors

ENGINES = ("neither", "webhook", "native", "both")
SETS: dict[str, Json] = {
    "storage-examples": {"storage": "large"},
    "ci-examples": {"team": "ci"},
    "fields": {},
    "classes": {},
    "opted-in": {"podsettle.dev/policy": "fields-opt-in"},
    "openshift-fields": {},
}
"""The labels of the namespaces in which policies act together, by a label of their own."""
PARTLY = "partly"
"""A set with a policy of which a part cannot be exported."""

POLICIES = """\
metadata: {name: fields-first}
spec:
  priority: 5
  namespaceSelector: {matchLabels: {set: fields}}
  podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [a]}]}
  remedies: {fsGroupChangePolicy: OnRootMismatch, skipSELinuxRelabel: {pods: All}}
---
metadata: {name: fields-second}
spec:
  namespaceSelector: {matchExpressions: [{key: set, operator: In, values: [fields]}]}
  podSelector: {matchExpressions: [{key: team, operator: Exists}]}
  remedies: {fsGroupChangePolicy: OnRootMismatch, seLinuxChangePolicy: Recursive}
---
metadata: {name: fields-third}
spec:
  priority: -1
  namespaceSelector: {matchLabels: {set: fields}}
  remedies: {seLinuxChangePolicy: Recursive, skipSELinuxRelabel: {when: Always}}
---
metadata: {name: classes-heavy}
spec:
  namespaceSelector: {matchLabels: {set: classes}}
  podSelector: {matchLabels: {team: a}}
  remedies: {runtimeClass: {name: heavy}, fsGroupChangePolicy: OnRootMismatch}
---
metadata: {name: classes-relabel}
spec:
  priority: 1
  namespaceSelector: {matchLabels: {set: classes}}
  remedies: {skipSELinuxRelabel: {pods: All, runtimeClassName: selinux-fix-runtime-class}}
---
metadata: {name: fields-without-app}
spec:
  podSelector: {matchExpressions: [{key: app, operator: DoesNotExist}]}
  namespaceSelector: {matchLabels: {set: opted-in}}
  remedies: {skipSELinuxRelabel: {pods: All}, fsGroupChangePolicy: OnRootMismatch}
---
metadata: {name: fields-opt-in}
spec:
  remedies: {seLinuxChangePolicy: Recursive, fsGroupChangePolicy: OnRootMismatch}
---
metadata: {name: protected-by-labels}
spec:
  priority: 1
  namespaceSelector: {matchLabels: {set: openshift-fields}}
  remedies: {fsGroupChangePolicy: OnRootMismatch, seLinuxChangePolicy: Recursive}
---
metadata: {name: protected-by-name}
spec:
  namespaceSelector:
    matchExpressions:
      - key: kubernetes.io/metadata.name
        operator: In
        values: [openshift-fields-webhook, openshift-fields-native, openshift-fields-both]
  remedies: {fsGroupChangePolicy: OnRootMismatch}
---
metadata: {name: partly}
spec:
  namespaceSelector: {matchLabels: {set: partly}}
  remedies: {fsGroupChangePolicy: OnRootMismatch, postInitSleep: {when: Always}}
"""
NODES: list[Json] = [
    {"apiVersion": "v1", "kind": "Node", **node("n1", "cri-o://1.35.2", "v1.35.2")}
]
"""A node that needs every remedy."""


class Engines:
    """The namespaces in which the webhook, native policies, both or neither settle pods."""

    def __init__(self, cluster: KubeCluster) -> None:
        self.cluster = cluster

    def create(self, pod: Json, name: str, engine: str) -> tuple[int, Json]:
        """Return the API server's answer to a dry run in the namespace of a set and an engine."""
        metadata = {**pod["metadata"], "namespace": f"{name}-{engine}"}
        status, body, _ = self.cluster.create_pod({**pod, "metadata": metadata}, dry_run=True)
        return status, body


@contextmanager
def running_engines(cluster: KubeCluster, manifests: Path, certs: Path) -> Iterator[Engines]:
    """Create namespaces, RuntimeClasses, native policies and a webhook, until the block ends."""
    prepare_for_fixture_pods(cluster)
    in_examples = yaml.safe_load_all((EXAMPLES / "cluster.yaml").read_text())
    classes = [HEAVY, *(each for each in in_examples if each["kind"] == "RuntimeClass")]
    for each in classes:
        cluster.create("/apis/node.k8s.io/v1/runtimeclasses", each)
    accounts = {load_pod(path)["spec"].get("serviceAccountName", "default") for path in PODS}
    accounts |= {"default", "pipeline"}
    namespaces = []
    for name, own_labels in {**SETS, PARTLY: {}}.items():
        for engine in ENGINES:
            labels = {"set": name, "engine": engine, **own_labels}
            cluster.namespace(f"{name}-{engine}", labels=labels, service_accounts=accounts)
            metadata = {"name": f"{name}-{engine}", "labels": labels}
            namespaces.append({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    documents = [*policies(), *classes, *namespaces, *NODES]
    (manifests / "all.yaml").write_text(yaml.safe_dump_all(documents))
    source = ManifestsSource(manifests)
    source.refresh()
    found = export(source.view, api_version=API_VERSION)
    assert [each.policy for each in found.not_native] == [PARTLY]
    native = [document for policy in found.policies for document in policy.documents]
    for document in native:
        if "matchConstraints" in document["spec"]:
            selector = document["spec"]["matchConstraints"]["namespaceSelector"]
            selector["matchExpressions"].append(_engine_in("native", "both"))
    with start_server(manifests, certs) as server:
        webhook = registered(cluster, "podsettle", f"{server.url}/mutate", server.ca.read_bytes())
        (entry,) = webhook.body["webhooks"]
        entry["namespaceSelector"] = {"matchExpressions": [_engine_in("webhook", "both")]}
        # Those of podsettle's own cluster webhooks. The names of protected namespaces differ.
        copies = cluster_webhooks(entry, webhook_selectors(source.view.policies.by_precedence))
        conditions = copies[0]["matchConditions"]
        entry["matchConditions"] = [each for each in conditions if each["name"] != "not-protected"]
        engines = Engines(cluster)
        with webhook, in_force(cluster, native):
            await_that(lambda: _is_called(engines), "the API server calls podsettle")
            yield engines


def policies() -> list[Json]:
    """Return the policies of this module, and those examples that are wholly native."""
    head = {"apiVersion": "podsettle.dev/v1alpha1", "kind": "SettlePolicy"}
    own = [{**head, **each} for each in yaml.safe_load_all(POLICIES)]
    native = {"runtimeClass", "skipSELinuxRelabel", "seLinuxChangePolicy", "fsGroupChangePolicy"}
    examples = yaml.safe_load_all((EXAMPLES / "policies.yaml").read_text())
    return [*own, *(each for each in examples if each["spec"]["remedies"].keys() <= native)]


def _engine_in(*engines: str) -> Json:
    return {"key": "engine", "operator": "In", "values": list(engines)}


def _is_called(engines: Engines) -> bool:
    pod = simple_pod("probe")
    pod["metadata"]["labels"] = {"app": "a", "team": "a"}
    _, body = engines.create(pod, "fields", "webhook")
    return "podsettle.dev/applied" in body["metadata"].get("annotations", {})
