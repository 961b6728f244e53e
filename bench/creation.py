"""The time that podsettle adds to a pod creation on a real API server.

The pods are created as dry runs on one connection. They alternate between setups: no webhook, the
echo, which decides nothing, podsettle, and the native policy that `podsettle export` writes for the
same SettlePolicy. All setups make the same pod. Only the pod's namespace decides which setup
applies. So all webhooks and policies stay registered, and nothing is reconfigured in between.
"""

from __future__ import annotations

import copy
import json
import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from http.client import HTTPSConnection
from ssl import create_default_context
from urllib.parse import urlsplit

from bench import results
from bench.clusters import write_manifests
from bench.commands import BenchError
from bench.intervals import percentile
from bench.results import ECHO, NATIVE, Values
from bench.reviews import Json, encode, tekton
from bench.rows import Run, without_uid
from bench.servers import non_loopback_address, serve_echo, serve_podsettle
from tests.support.factories import policy_document
from tests.support.kube.cluster import KubeCluster
from tests.support.registered_webhook import registered
from tests.support.waiting import await_that
from webhook.core.export.native_policies import export
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.model import parse_policy
from webhook.core.policy.snapshot import Snapshot

_NO_WEBHOOK = "no webhook"
_API = "/apis/admissionregistration.k8s.io/v1"
_POD: Json = tekton()["request"]["object"]


def measure(run: Run, _names: Sequence[str]) -> Values:
    """Measure the latency of pod creations at the client, and the increment of each setup."""
    address = non_loopback_address()
    run.log_progress("creation: starting kube-apiserver and etcd")
    namespaces = {name: name.replace(" ", "-") for name in (_NO_WEBHOOK, *run.codes, ECHO, NATIVE)}
    settled = [namespaces[name] for name in run.codes]
    documents: list[Json] = [_policy(settled)]
    for name in settled:
        labels = {"kubernetes.io/metadata.name": name}
        metadata = {"name": name, "labels": labels}
        documents.append({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    manifests = write_manifests(run.directory / "creation", documents)
    with ExitStack() as stack:
        cluster = stack.enter_context(KubeCluster.start())
        for name in namespaces.values():
            cluster.namespace(name, service_accounts=[_POD["spec"]["serviceAccountName"]])
        servers = {}
        for name, code in run.codes.items():
            server = serve_podsettle(code, run.certs, None, manifests=manifests, host=address)
            servers[name] = stack.enter_context(server)
        answer = run.directory / "creation.json"
        review = tekton()
        review["request"]["namespace"] = namespaces[results.PODSETTLE]
        (response,) = servers[results.PODSETTLE].answer([encode(review)])
        answer.write_bytes(without_uid(response))
        servers[ECHO] = stack.enter_context(serve_echo(run.certs, answer, None, address))
        for name, each in servers.items():
            webhook = registered(cluster, namespaces[name], each.url, each.ca.read_bytes())
            selected = {"kubernetes.io/metadata.name": namespaces[name]}
            webhook.body["webhooks"][0]["namespaceSelector"] = {"matchLabels": selected}
            stack.enter_context(webhook)
        found = export(Snapshot(policies=PolicySet([parse_policy(_policy([namespaces[NATIVE]]))])))
        for document in found.policies[0].documents:
            kind = "policies" if "mutations" in document["spec"] else "policybindings"
            cluster.create(f"{_API}/mutatingadmission{kind}", document)
        _await_same_pods(cluster, [*map(namespaces.__getitem__, (*servers, NATIVE))])
        return _measure_latencies(run, cluster, namespaces)


def _policy(namespaces: Sequence[str]) -> Json:
    """Return a policy for these namespaces, of a remedy that CEL can express."""
    names = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces}
    task_run = {"key": "tekton.dev/taskRun", "operator": "Exists"}
    return policy_document(
        "skip-relabel",
        namespaceSelector={"matchExpressions": [names]},
        podSelector={"matchExpressions": [task_run]},
        remedies={"skipSELinuxRelabel": {"pods": "All", "when": "Always"}},
    )


def _await_same_pods(cluster: KubeCluster, namespaces: Sequence[str]) -> None:
    """Wait until all setups are in force, and make the same pod."""

    def make_same_pods() -> bool:
        pods = []
        for namespace in namespaces:
            status, pod, _ = cluster.create_pod(_make_pod(namespace, "probe"), dry_run=True)
            found = pod.get("metadata", {}).get("annotations", {})
            # No native policy writes this annotation.
            pods.append((status, pod.get("spec"), {**found, "podsettle.dev/settled": ""}))
        return "podsettle.dev/applied" in pods[0][2] and all(each == pods[0] for each in pods)

    await_that(make_same_pods, "all setups make the same pod")


def _make_pod(namespace: str, name: str) -> Json:
    pod: Json = copy.deepcopy(_POD)
    pod["metadata"] |= {"name": name, "namespace": namespace}
    return pod


def _measure_latencies(run: Run, cluster: KubeCluster, namespaces: dict[str, str]) -> Values:
    """Create pods in all namespaces. Return the figures of each setup, in milliseconds."""
    url = urlsplit(cluster.url)
    context = create_default_context(cafile=cluster.ca_file)
    client = HTTPSConnection(url.hostname or "", url.port, context=context)
    generator = random.Random(0)
    setups = list(namespaces)
    values: Values = {results.CREATION: {}, results.INCREMENT: {}, results.ABOVE_ECHO: {}}
    # The first round is a warm-up.
    for number in range(run.effort.rounds + 1):
        run.log_progress(f"creation: round {number} of {run.effort.rounds}")
        latencies: dict[str, list[float]] = {setup: [] for setup in setups}
        for pod in range(run.effort.creations):
            # A random order, because a creation can affect the next one.
            generator.shuffle(setups)
            for setup in setups:
                name = f"build-run-{number}-{pod:06}-unit-pod"
                latencies[setup].append(_create(client, cluster.token, namespaces[setup], name))
        if not number:
            continue
        p50 = {setup: percentile(latencies[setup], 50) for setup in namespaces}
        for setup, latency in p50.items():
            values[results.CREATION].setdefault(setup, []).append(latency)
            if setup == _NO_WEBHOOK:
                continue
            increment = latency - p50[_NO_WEBHOOK]
            values[results.INCREMENT].setdefault(setup, []).append(increment)
            if setup != ECHO:
                values[results.ABOVE_ECHO].setdefault(setup, []).append(latency - p50[ECHO])
    client.close()
    return values


def _create(client: HTTPSConnection, token: str, namespace: str, name: str) -> float:
    """Create a pod as a dry run, and return the milliseconds until the end of the answer."""
    pod = json.dumps(_make_pod(namespace, name))
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    start = time.perf_counter()
    client.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod, headers)
    answer = client.getresponse()
    body = answer.read()
    milliseconds = (time.perf_counter() - start) * 1e3
    is_settled = b'"podsettle.dev/applied":' in body
    if answer.status != 201 or is_settled is (namespace == _NO_WEBHOOK.replace(" ", "-")):
        raise BenchError(f"{namespace}: wrong answer: {answer.status} {body[:500]!r}")
    return milliseconds
