"""The time that podsettle adds to a pod creation on a real API server, compared with CEL.

The pods are created as dry runs on one connection. They alternate between these setups: no webhook,
the native policies, and podsettle's two webhooks. Only the pod's namespace decides which setup
applies. So all webhooks and policies stay registered, and nothing is reconfigured in between.

One setup has a policy that `podsettle export` can write, in this form. Before the measurement, its
pod is compared with the one that podsettle makes by this policy.
"""

from __future__ import annotations

import base64
import copy
import json
import random
import re
import time
from contextlib import ExitStack
from http.client import HTTPSConnection
from typing import Any

from bench.cel_patch import cel_patch
from bench.errors import BenchError
from bench.measurement import Measurement, Rows, percentile
from bench.report_table import ReportTable
from bench.reviews import Json, tekton
from bench.run import Run
from bench.servers import (
    Server,
    certificates,
    non_loopback_address,
    open_connection,
    serve_podsettle,
)
from tests.support.helm import named
from tests.support.kube.cluster import KubeCluster
from webhook.core.constants import GROUP, LABEL_ENABLED, LABEL_NAMESPACE_NAME, LABEL_POLICY
from webhook.core.export.native_policies import export
from webhook.core.policy.cluster_webhooks import OPT_IN_WEBHOOK, cluster_webhooks
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.model import parse_policy
from webhook.core.policy.snapshot import Snapshot
from webhook.core.policy.webhook_selectors import CLUSTER_WEBHOOK, webhook_selectors

NAME = "end-to-end"
NONE, NATIVE, PODSETTLE = "no webhook", "native policy", "podsettle"
NATIVE_ONCE = "native policy, never reinvoked"
CLUSTER_WIDE = "podsettle, cluster-wide policy"
EXPORTED = "exported policy"
INCREMENT, INCREMENT_P99 = "increment, p50", "increment, p99"
CALLS = "calls per pod"

_POD: Json = tekton()["request"]["object"]
_API = "/apis/admissionregistration.k8s.io/v1"
_NAMESPACES = {
    NONE: "without",
    NATIVE: "native",
    NATIVE_ONCE: "native-once",
    PODSETTLE: "opted-in",
    CLUSTER_WIDE: "selected",
    EXPORTED: "exported",
}
_POLICY: Json = {
    "apiVersion": "podsettle.dev/v1alpha1",
    "kind": "SettlePolicy",
    "metadata": {"name": "tekton-on-crio"},
    "spec": {
        # In the other namespace, the exported policy acts alone.
        "namespaceSelector": {
            "matchExpressions": [
                {"key": LABEL_NAMESPACE_NAME, "operator": "NotIn", "values": ["by-webhook"]}
            ]
        },
        "podSelector": {"matchExpressions": [{"key": "tekton.dev/taskRun", "operator": "Exists"}]},
        # A remedy that CEL can express. CEL knows neither the nodes nor which images have a shell.
        "remedies": {"postInitSleep": {"when": "Always", "delivery": "ImageVolume"}},
    },
}
_EXPORTABLE_POLICY: Json = {
    **_POLICY,
    "metadata": {"name": "skip-relabel"},
    "spec": {
        **_POLICY["spec"],
        # It comes before the other policy, which covers every namespace.
        "priority": 1,
        "namespaceSelector": {"matchLabels": {LABEL_NAMESPACE_NAME: _NAMESPACES[EXPORTED]}},
        "remedies": {"skipSELinuxRelabel": {"pods": "All", "when": "Always"}},
    },
}
_BY_WEBHOOK = "by-webhook"
"""A namespace in which podsettle settles pods by the policy that is exported."""
_LABELS = {setup: {LABEL_ENABLED: "false"} for setup in _NAMESPACES} | {
    PODSETTLE: {LABEL_POLICY: _POLICY["metadata"]["name"]},
    CLUSTER_WIDE: {},
    # An exported policy leaves namespaces with LABEL_ENABLED "false" alone.
    EXPORTED: {},
}
# The API server's metrics that count evaluations of each policy and calls of each webhook.
_COUNTERS = {
    NATIVE: ("apiserver_mutating_admission_policy_check_total", "policy", _NAMESPACES[NATIVE]),
    NATIVE_ONCE: (
        "apiserver_mutating_admission_policy_check_total",
        "policy",
        _NAMESPACES[NATIVE_ONCE],
    ),
    EXPORTED: (
        "apiserver_mutating_admission_policy_check_total",
        "policy",
        f"{_EXPORTABLE_POLICY['metadata']['name']}.{GROUP}",
    ),
    PODSETTLE: ("apiserver_admission_webhook_request_total", "name", OPT_IN_WEBHOOK),
    CLUSTER_WIDE: ("apiserver_admission_webhook_request_total", "name", CLUSTER_WEBHOOK),
}
_RULE: Json = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["pods"],
    "operations": ["CREATE"],
}
_IN_FORCE_TIMEOUT_SECONDS = 30.0


def measure(run: Run) -> ReportTable:
    """Measure the latency of pod creations at the client, and the increment of each setup."""
    part = ReportTable(NAME, "Pod creation on a real API server, one connection, dry runs")
    address = non_loopback_address()
    run.log_progress("end to end: starting kube-apiserver and etcd")
    manifests = run.directory / "end-to-end"
    manifests.mkdir()
    namespaces = {name: _LABELS[setup] for setup, name in _NAMESPACES.items()}
    namespaces[_BY_WEBHOOK] = {LABEL_POLICY: _EXPORTABLE_POLICY["metadata"]["name"]}
    for policy in (_POLICY, _EXPORTABLE_POLICY):
        (manifests / f"{policy['metadata']['name']}.yaml").write_text(json.dumps(policy))
    for name, labels in namespaces.items():
        metadata = {"name": name, "labels": labels}
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        (manifests / f"{name}.yaml").write_text(json.dumps(document))
    certs = certificates(run.directory / "certs-address", address)
    with ExitStack() as stack:
        cluster = stack.enter_context(KubeCluster.start())
        log = run.directory / "end-to-end.log"
        server = stack.enter_context(serve_podsettle(certs, log, manifests=manifests, host=address))
        for name, labels in namespaces.items():
            account = _POD["spec"]["serviceAccountName"]
            cluster.namespace(name, labels, service_accounts=[account])
        opt_in, selected = _register_webhooks(cluster, server)
        for setup in (PODSETTLE, CLUSTER_WIDE):
            _wait_until_in_force(cluster, setup)
        _add_native_policies(cluster, selected["matchConditions"])
        by_webhook = _created_pod(cluster, _BY_WEBHOOK)
        _add_exported_policy(cluster)
        for setup in (NATIVE, NATIVE_ONCE, EXPORTED):
            _wait_until_in_force(cluster, setup)
        _check_same_pods(cluster, by_webhook)
        run.log_progress("end to end: creating pods")
        part.rows = _measure_latencies(run, cluster)
        version = cluster.request("GET", "/version").body["gitVersion"]
    part.notes += [
        f"kube-apiserver {version}. API server, etcd, webhook and client share the machine, and "
        "none of them is pinned to a core. Every pod has a different name.",
        f"'{PODSETTLE}' is a namespace that opts in by label: the webhook of the chart, with "
        f"{len(opt_in.get('matchConditions', ()))} match conditions. '{CLUSTER_WIDE}' is the "
        "webhook that podsettle registers for namespaces that policies select, with "
        f"{len(selected['matchConditions'])}. The helper is delivered by an image volume, and "
        "nothing else changes this pod. So neither webhook is reinvoked. If an init container "
        "delivers the helper (nodes before Kubernetes 1.36), the API server mounts a token into it "
        "afterwards and reinvokes the webhook of the chart. The API server counts the calls.",
        "Each native policy is bound to one namespace. It makes the same pod as podsettle, in "
        f"every field. '{NATIVE}' has podsettle's match condition not-settled. Without it, the "
        f"policy would be reinvoked because of its own change. '{NATIVE_ONCE}' has "
        "reinvocationPolicy Never and no match condition. It would miss a container that is added "
        "later.",
        f"'{EXPORTED}' is the output of podsettle export for another policy, which annotates the "
        "pod. podsettle makes the same pod by this policy, in every field.",
    ]
    return part


def _measure_latencies(run: Run, cluster: KubeCluster) -> Rows:
    """Create the pods, and return a row of figures for each setup."""
    client = open_connection(cluster.url, cluster.ca_file)
    creator = _Creator(client, cluster.token)
    generator = random.Random(0)
    setups = list(_NAMESPACES)
    for _ in range(max(10, run.profile.creates // 5)):
        for setup in setups:
            creator.create(setup)
    before = _call_counts(cluster)
    p50: dict[str, list[float]] = {setup: [] for setup in setups}
    p99: dict[str, list[float]] = {setup: [] for setup in setups}
    for _ in range(run.profile.rounds):
        latencies: dict[str, list[float]] = {setup: [] for setup in setups}
        for _ in range(run.profile.creates):
            # A random order, because a creation can affect the next one.
            generator.shuffle(setups)
            for setup in setups:
                latencies[setup].append(creator.create(setup) * 1e3)
        for setup in setups:
            p50[setup].append(percentile(latencies[setup], 50))
            p99[setup].append(percentile(latencies[setup], 99))
    client.close()
    after, pods = _call_counts(cluster), run.profile.rounds * run.profile.creates
    rows = {}
    for setup in _NAMESPACES:
        rows[setup] = {
            "p50": Measurement(tuple(p50[setup]), "ms"),
            "p99": Measurement(tuple(p99[setup]), "ms"),
        }
        if setup != NONE:
            rows[setup][INCREMENT] = rows[setup]["p50"].minus(rows[NONE]["p50"])
            rows[setup][INCREMENT_P99] = rows[setup]["p99"].minus(rows[NONE]["p99"])
            rows[setup][CALLS] = Measurement(((after[setup] - before[setup]) / pods,))
    return rows


def _call_counts(cluster: KubeCluster) -> dict[str, float]:
    """Return the API server's count of calls of each setup."""
    text = cluster.request("GET", "/metrics").body["text"]
    return {
        setup: sum(
            float(count)
            for labels, count in re.findall(rf"^{metric}{{(.*)}} (\S+)$", text, re.MULTILINE)
            if f'{label}="{name}"' in labels.split(",")
        )
        for setup, (metric, label, name) in _COUNTERS.items()
    }


class _Creator:
    """A client that creates pods on one connection and measures the time."""

    def __init__(self, client: HTTPSConnection, token: str) -> None:
        self._client = client
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._number = 0

    def create(self, setup: str) -> float:
        """Create a pod as a dry run, and return the seconds until the end of the answer."""
        self._number += 1
        pod = json.dumps(
            _make_pod(_NAMESPACES[setup], f"build-run-{self._number:06}-unit-pod")
        ).encode()
        path = f"/api/v1/namespaces/{_NAMESPACES[setup]}/pods?dryRun=All"
        start = time.perf_counter()
        self._client.request("POST", path, pod, self._headers)
        response = self._client.getresponse()
        body = response.read()
        seconds = time.perf_counter() - start
        settled = b'"podsettle.dev/applied":' in body
        if response.status != 201 or settled is (setup == NONE):
            raise BenchError(f"{setup}: wrong answer: {response.status} {body[:500]!r}")
        return seconds


def _make_pod(namespace: str, name: str) -> Json:
    pod: Json = copy.deepcopy(_POD)
    pod["metadata"] |= {"name": name, "namespace": namespace}
    return pod


def _created_pod(cluster: KubeCluster, namespace: str) -> Json:
    """Return the pod that the API server would create in a namespace."""
    status, pod, _ = cluster.create_pod(_make_pod(namespace, "probe"), dry_run=True)
    if status != 201:
        raise BenchError(f"{namespace}: the API server rejects the pod: {status} {pod}")
    return pod


def _is_settled(pod: Json) -> bool:
    return "podsettle.dev/applied" in pod["metadata"].get("annotations", {})


def _check_same_pods(cluster: KubeCluster, by_webhook: Json) -> None:
    """Raise BenchError if podsettle and another setup make different pods.

    `by_webhook` is the pod that podsettle makes by the policy that is exported.
    """
    opted_in = _created_pod(cluster, _NAMESPACES[PODSETTLE])
    for setup in (CLUSTER_WIDE, NATIVE, NATIVE_ONCE, EXPORTED):
        pod = _without_creation_fields(_created_pod(cluster, _NAMESPACES[setup]))
        expected = _without_creation_fields(by_webhook if setup == EXPORTED else opted_in)
        if pod != expected:
            raise BenchError(
                f"{setup} and podsettle make different pods:\n{pod}\nand podsettle:\n{expected}"
            )


def _without_creation_fields(pod: Json) -> Json:
    """Return the pod without fields that differ between two creations."""
    for key in ("uid", "creationTimestamp", "namespace", "managedFields"):
        pod["metadata"].pop(key, None)
    return pod


def _register_webhooks(cluster: KubeCluster, server: Server) -> tuple[Json, Json]:
    """Register podsettle's webhooks, with a URL instead of a Service, and return both."""
    bundle = base64.b64encode(server.ca.read_bytes()).decode()
    (opt_in,) = named("MutatingWebhookConfiguration", "podsettle")["webhooks"]
    opt_in |= {
        "clientConfig": {"url": server.url, "caBundle": bundle},
        # With the chart's Ignore, the benchmark would not notice a failed call.
        "failurePolicy": "Fail",
        "timeoutSeconds": 10,
    }
    # There, only the exported policy settles pods.
    excluded = {
        "key": LABEL_NAMESPACE_NAME,
        "operator": "NotIn",
        "values": [_NAMESPACES[EXPORTED]],
    }
    opt_in["namespaceSelector"]["matchExpressions"].append(excluded)
    (selected,) = cluster_webhooks(opt_in, webhook_selectors([parse_policy(_POLICY)]))
    body = {"metadata": {"name": "podsettle"}, "webhooks": [opt_in, selected]}
    cluster.create(f"{_API}/mutatingwebhookconfigurations", body)
    return opt_in, selected


def _add_native_policies(cluster: KubeCluster, conditions: list[Json]) -> None:
    """Create MutatingAdmissionPolicies that change this pod in the same way as podsettle."""
    expression = cel_patch(_POD, _created_pod(cluster, _NAMESPACES[PODSETTLE]))
    # A policy's own change can cause its reinvocation, unlike a webhook's own change. The condition
    # prevents this for the first policy. The second policy is never reinvoked.
    not_settled = [condition for condition in conditions if condition["name"] == "not-settled"]
    for setup, reinvocation, match_conditions in (
        (NATIVE, "IfNeeded", not_settled),
        (NATIVE_ONCE, "Never", []),
    ):
        name = _NAMESPACES[setup]
        spec: dict[str, Any] = {
            "matchConstraints": {
                "resourceRules": [_RULE],
                "objectSelector": _POLICY["spec"]["podSelector"],
            },
            "matchConditions": match_conditions,
            "failurePolicy": "Fail",
            "reinvocationPolicy": reinvocation,
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
        }
        path = f"{_API}/mutatingadmissionpolicies"
        cluster.create(path, {"metadata": {"name": name}, "spec": spec})
        selector = {"matchLabels": {LABEL_NAMESPACE_NAME: name}}
        binding = {"policyName": name, "matchResources": {"namespaceSelector": selector}}
        path = f"{_API}/mutatingadmissionpolicybindings"
        cluster.create(path, {"metadata": {"name": name}, "spec": binding})


def _add_exported_policy(cluster: KubeCluster) -> None:
    """Create the native policy and the bindings that `podsettle export` prints."""
    found = export(Snapshot(policies=PolicySet([parse_policy(_EXPORTABLE_POLICY)])))
    for document in found.policies[0].documents:
        kind = "policies" if "mutations" in document["spec"] else "policybindings"
        cluster.create(f"{_API}/mutatingadmission{kind}", document)


def _wait_until_in_force(cluster: KubeCluster, setup: str) -> None:
    deadline = time.monotonic() + _IN_FORCE_TIMEOUT_SECONDS
    while not _is_settled(_created_pod(cluster, _NAMESPACES[setup])):
        if time.monotonic() > deadline:
            raise BenchError(f"timeout while waiting until {setup} is in force")
        time.sleep(0.05)
