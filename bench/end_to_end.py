"""What a pod's creation takes longer on a real API server: with podsettle, and with CEL.

Dry runs on one connection, in turn: no webhook, the native policies, podsettle's two webhooks, and
again. Which of them a pod meets hangs on its namespace alone, so that all are in force all the time
and nothing is reconfigured between two creations.
"""

from __future__ import annotations

import base64
import copy
import json
import random
import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from http.client import HTTPSConnection
from typing import Any

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
from webhook.core.constants import LABEL_ENABLED, LABEL_NAMESPACE_NAME, LABEL_POLICY
from webhook.core.policy.model import parse_policy
from webhook.core.policy.webhook_rules import OPT_IN_WEBHOOK, cluster_webhooks
from webhook.core.policy.webhook_selectors import CLUSTER_WEBHOOK, webhook_selectors

NAME = "end-to-end"
NONE, NATIVE, PODSETTLE = "no webhook", "native policy", "podsettle"
NATIVE_ONCE = "native policy, not called again"
BY_POLICY = "podsettle, by a cluster-wide policy"
INCREMENT, INCREMENT_P99 = "increment, p50", "increment, p99"
CALLS = "calls per pod"

_POD: Json = tekton()["request"]["object"]
_API = "/apis/admissionregistration.k8s.io/v1"
_NAMESPACES = {
    NONE: "without",
    NATIVE: "native",
    NATIVE_ONCE: "native-once",
    PODSETTLE: "opted-in",
    BY_POLICY: "selected",
}
_POLICY: Json = {
    "apiVersion": "podsettle.dev/v1alpha1",
    "kind": "SettlePolicy",
    "metadata": {"name": "tekton-on-crio"},
    "spec": {
        "namespaceSelector": {},
        "podSelector": {"matchExpressions": [{"key": "tekton.dev/taskRun", "operator": "Exists"}]},
        # A job that CEL can do as well: it knows neither the nodes nor what is a shell.
        "remedies": {"postInitSleep": {"when": "Always", "delivery": "ImageVolume"}},
    },
}
_LABELS = {kind: {LABEL_ENABLED: "false"} for kind in _NAMESPACES} | {
    PODSETTLE: {LABEL_POLICY: _POLICY["metadata"]["name"]},
    BY_POLICY: {},
}
_COUNTED = {
    NATIVE: ("apiserver_mutating_admission_policy_check_total", "policy", _NAMESPACES[NATIVE]),
    NATIVE_ONCE: (
        "apiserver_mutating_admission_policy_check_total",
        "policy",
        _NAMESPACES[NATIVE_ONCE],
    ),
    PODSETTLE: ("apiserver_admission_webhook_request_total", "name", OPT_IN_WEBHOOK),
    BY_POLICY: ("apiserver_admission_webhook_request_total", "name", CLUSTER_WEBHOOK),
}
"""Where the API server counts how often it evaluated a policy and called a webhook."""
_RULE: Json = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["pods"],
    "operations": ["CREATE"],
}
_TIMEOUT_SECONDS = 30.0


def measure(run: Run) -> ReportTable:
    """The latency of creations at the client, and what each kind adds to it."""
    part = ReportTable(NAME, "Pod creation on a real API server, one connection, dry runs")
    address = non_loopback_address()
    run.log_progress("end to end: starting kube-apiserver and etcd")
    manifests = run.directory / "end-to-end"
    manifests.mkdir()
    (manifests / "policy.yaml").write_text(json.dumps(_POLICY))
    for kind, name in _NAMESPACES.items():
        metadata = {"name": name, "labels": _LABELS[kind]}
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        (manifests / f"{name}.yaml").write_text(json.dumps(document))
    certs = certificates(run.directory / "certs-address", address)
    with ExitStack() as stack:
        cluster = stack.enter_context(KubeCluster.start())
        log = run.directory / "end-to-end.log"
        server = stack.enter_context(serve_podsettle(certs, log, manifests=manifests, host=address))
        for kind, namespace in _NAMESPACES.items():
            account = _POD["spec"]["serviceAccountName"]
            cluster.namespace(namespace, _LABELS[kind], service_accounts=[account])
        opt_in, selected = _register(cluster, server)
        for kind in (PODSETTLE, BY_POLICY):
            _await(lambda kind=kind: _is_settled(_created(cluster, kind)), f"{kind} is in force")  # type: ignore[misc]
        _add_native_policies(cluster, selected["matchConditions"])
        for kind in (NATIVE, NATIVE_ONCE):
            _await(lambda kind=kind: _is_settled(_created(cluster, kind)), f"{kind} is in force")  # type: ignore[misc]
        _compare(cluster)
        run.log_progress("end to end: creating pods")
        part.rows = _latencies(run, cluster)
        version = cluster.request("GET", "/version").body["gitVersion"]
    part.notes += [
        f"kube-apiserver {version}; nothing is pinned, API server, etcd, webhook and client share "
        "the machine. Every pod has a name of its own.",
        f"'{PODSETTLE}' is a namespace that opts in by label: the webhook of the chart, with "
        f"{len(opt_in.get('matchConditions', ()))} match conditions. '{BY_POLICY}' is the webhook "
        "that podsettle registers for namespaces that policies select, with "
        f"{len(selected['matchConditions'])}. The helper comes by an image volume, and nothing "
        "else changes this pod, so neither is called again. Where an init container brings the "
        "helper (nodes before Kubernetes 1.36), the API server mounts a token into it afterwards "
        "and calls the webhook of the chart once more. The calls are the API server's count.",
        "The native policies are bound to one namespace each and make the same pod as podsettle "
        f"does, in every field. '{NATIVE}' has podsettle's match condition not-settled: without it "
        f"the policy would be called again for its own change. '{NATIVE_ONCE}' has "
        "reinvocationPolicy Never and no match condition instead: it would miss a container that "
        "comes later.",
    ]
    return part


def _latencies(run: Run, cluster: KubeCluster) -> Rows:
    client = open_connection(cluster.url, cluster.ca_file)
    creator = _Creator(client, cluster.token)
    chance = random.Random(0)
    kinds = list(_NAMESPACES)
    for _ in range(max(10, run.profile.creates // 5)):
        for kind in kinds:
            creator.create(kind)
    before = _calls(cluster)
    p50: dict[str, list[float]] = {kind: [] for kind in kinds}
    p99: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(run.profile.rounds):
        took: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(run.profile.creates):
            # Nobody always comes after the same other.
            chance.shuffle(kinds)
            for kind in kinds:
                took[kind].append(creator.create(kind) * 1e3)
        for kind in kinds:
            p50[kind].append(percentile(took[kind], 50))
            p99[kind].append(percentile(took[kind], 99))
    client.close()
    after, pods = _calls(cluster), run.profile.rounds * run.profile.creates
    rows = {}
    for kind in _NAMESPACES:
        half, most = Measurement(tuple(p50[kind]), "ms"), Measurement(tuple(p99[kind]), "ms")
        rows[kind] = {"p50": half, "p99": most}
        if kind != NONE:
            rows[kind][INCREMENT] = half.minus(rows[NONE]["p50"])
            rows[kind][INCREMENT_P99] = most.minus(rows[NONE]["p99"])
            rows[kind][CALLS] = Measurement(((after[kind] - before[kind]) / pods,))
    return rows


def _calls(cluster: KubeCluster) -> dict[str, float]:
    """How often the API server has called each kind so far, by its own count."""
    text = cluster.request("GET", "/metrics").body["text"]
    return {
        kind: sum(
            float(count)
            for labels, count in re.findall(rf"^{metric}{{(.*)}} (\S+)$", text, re.MULTILINE)
            if f'{label}="{name}"' in labels.split(",")
        )
        for kind, (metric, label, name) in _COUNTED.items()
    }


class _Creator:
    """Creates pods on one connection, and takes the time."""

    def __init__(self, client: HTTPSConnection, token: str) -> None:
        self._client = client
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._number = 0

    def create(self, kind: str) -> float:
        """Seconds until the answer was there."""
        self._number += 1
        pod = json.dumps(_pod(kind, f"build-run-{self._number:06}-unit-pod")).encode()
        path = f"/api/v1/namespaces/{_NAMESPACES[kind]}/pods?dryRun=All"
        start = time.perf_counter()
        self._client.request("POST", path, pod, self._headers)
        response = self._client.getresponse()
        body = response.read()
        took = time.perf_counter() - start
        settled = b'"podsettle.dev/applied":' in body
        if response.status != 201 or settled is (kind == NONE):
            raise BenchError(f"a pod with {kind}: {response.status} {body[:500]!r}")
        return took


def _pod(kind: str, name: str) -> Json:
    pod: Json = copy.deepcopy(_POD)
    pod["metadata"] |= {"name": name, "namespace": _NAMESPACES[kind]}
    return pod


def _created(cluster: KubeCluster, kind: str) -> Json:
    """A pod as it would be created."""
    status, pod, _ = cluster.create_pod(_pod(kind, "probe"), dry_run=True)
    if status != 201:
        raise BenchError(f"a pod with {kind}: {status} {pod}")
    return pod


def _is_settled(pod: Json) -> bool:
    return "podsettle.dev/applied" in pod["metadata"].get("annotations", {})


def _compare(cluster: KubeCluster) -> None:
    """Raise BenchError where the others do not do what podsettle does."""
    wanted = _lasting(_created(cluster, PODSETTLE))
    for other in (BY_POLICY, NATIVE, NATIVE_ONCE):
        found = _lasting(_created(cluster, other))
        if found != wanted:
            raise BenchError(f"{other} makes another pod:\n{found}\nthan podsettle:\n{wanted}")


def _lasting(pod: Json) -> Json:
    """A pod without what every creation has of its own."""
    for key in ("uid", "creationTimestamp", "namespace", "managedFields"):
        pod["metadata"].pop(key, None)
    return pod


def _register(cluster: KubeCluster, server: Server) -> tuple[Json, Json]:
    """podsettle's webhooks, as they are installed but for an address in place of a Service."""
    bundle = base64.b64encode(server.ca.read_bytes()).decode()
    (opt_in,) = named("MutatingWebhookConfiguration", "podsettle")["webhooks"]
    opt_in |= {
        "clientConfig": {"url": server.url, "caBundle": bundle},
        # Not the chart's Ignore: a call that fails has to be seen.
        "failurePolicy": "Fail",
        "timeoutSeconds": 10,
    }
    (selected,) = cluster_webhooks(opt_in, webhook_selectors([parse_policy(_POLICY)]))
    body = {"metadata": {"name": "podsettle"}, "webhooks": [opt_in, selected]}
    cluster.create(f"{_API}/mutatingwebhookconfigurations", body)
    return opt_in, selected


def _add_native_policies(cluster: KubeCluster, conditions: list[Json]) -> None:
    """MutatingAdmissionPolicies that do what podsettle does to this kind of pod."""
    expression = _as_cel(_created(cluster, PODSETTLE))
    # A policy is called again for its own change too, a webhook only for those of others: without
    # the condition the first one would run twice. The second never does.
    not_settled = [condition for condition in conditions if condition["name"] == "not-settled"]
    for kind, again, wanted in (
        (NATIVE, "IfNeeded", not_settled),
        (NATIVE_ONCE, "Never", []),
    ):
        name = _NAMESPACES[kind]
        spec: dict[str, Any] = {
            "matchConstraints": {
                "resourceRules": [_RULE],
                "objectSelector": _POLICY["spec"]["podSelector"],
            },
            "matchConditions": wanted,
            "failurePolicy": "Fail",
            "reinvocationPolicy": again,
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
        }
        path = f"{_API}/mutatingadmissionpolicies"
        cluster.create(path, {"metadata": {"name": name}, "spec": spec})
        selector = {"matchLabels": {LABEL_NAMESPACE_NAME: name}}
        binding = {"policyName": name, "matchResources": {"namespaceSelector": selector}}
        path = f"{_API}/mutatingadmissionpolicybindings"
        cluster.create(path, {"metadata": {"name": name}, "spec": binding})


def _as_cel(settled: Json) -> str:
    """What was done to a pod, as a JSON patch in CEL for every pod of that kind."""
    wrapper = None
    for before, after in zip(
        _POD["spec"]["initContainers"], settled["spec"]["initContainers"], strict=True
    ):
        found = after["command"][: -len(before["command"])]
        if not found or wrapper not in (None, found):
            raise BenchError(f"podsettle has put {found} in front of {before['name']}")
        wrapper = found
    applied = settled["metadata"]["annotations"]["podsettle.dev/applied"]
    mount = settled["spec"]["initContainers"][0]["volumeMounts"][-1]
    volume = settled["spec"]["volumes"][-1]
    return f"""
    (has(object.metadata.annotations) ? [] : [
      JSONPatch{{op: "add", path: "/metadata/annotations", value: {{}}}}
    ]) + [
      JSONPatch{{op: "add", path: "/metadata/annotations/podsettle.dev~1applied",
        value: {json.dumps(applied)}}},
      JSONPatch{{op: "add", path: "/metadata/annotations/podsettle.dev~1settled",
        value: string(size(object.spec.containers))
          + "/" + string(size(object.spec.initContainers))
          + "/" + string(size(object.spec.volumes) + 1)
          + "/" + string(size(object.metadata.labels))}},
      JSONPatch{{op: "add", path: "/spec/volumes/-", value: Object.spec.volumes{{
        name: {json.dumps(volume["name"])},
        image: Object.spec.volumes.image{{
          reference: {json.dumps(volume["image"]["reference"])},
          pullPolicy: {json.dumps(volume["image"]["pullPolicy"])}}}}}}}
    ] + lists.range(size(object.spec.initContainers))
      .filter(i, has(object.spec.initContainers[i].command))
      .map(i, JSONPatch{{op: "replace",
        path: "/spec/initContainers/" + string(i) + "/command",
        value: {json.dumps(wrapper)} + object.spec.initContainers[i].command}})
    + lists.range(size(object.spec.initContainers))
      .filter(i, has(object.spec.initContainers[i].command))
      .map(i, JSONPatch{{op: "add",
        path: "/spec/initContainers/" + string(i) + "/volumeMounts/-",
        value: Object.spec.initContainers.volumeMounts{{
          name: {json.dumps(mount["name"])},
          mountPath: {json.dumps(mount["mountPath"])},
          readOnly: true}}}})
    """


def _await(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise BenchError(f"waited in vain until {what}")
        time.sleep(0.05)
