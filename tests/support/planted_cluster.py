"""A cluster with thousands of pods, among them those of `tests.support.planted_symptoms`."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support import planted_symptoms
from tests.support.kube.cluster import KubeCluster
from tests.support.planted_symptoms import (
    LOOK_ALIKES,
    NODE_HANDLERS,
    NODE_RUNTIMES,
    PLANTS,
    POLICY,
    REQUESTS,
    RUNTIME_CLASS,
    WAITING,
    Json,
    Plant,
)
from webhook.core.constants import API_VERSION

NAMESPACES = ("ci", "shop")
"""Each of them has every planted pod."""
_CONNECTIONS = 16
_CSR_API = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
_SCRIPT = "step " * 200


def fill(cluster: KubeCluster, pods: int, nodes: int) -> None:
    """Create nodes and pods until there are so many of each, with every planted pod twice."""
    for namespace in NAMESPACES:
        cluster.namespace(namespace)
    cluster.create("/apis/node.k8s.io/v1/runtimeclasses", RUNTIME_CLASS)
    cluster.create(f"/apis/{API_VERSION}/settlepolicies", POLICY)
    names = [*NODE_RUNTIMES, *(f"node-{n}" for n in range(nodes - len(NODE_RUNTIMES)))]
    plants = [(plant, each) for plant in (*PLANTS, *LOOK_ALIKES) for each in NAMESPACES]
    # Their containers started long before new nodes got their certificates.
    old_nodes = [name for name in names if name not in REQUESTS]
    ordinary = [_ordinary_pod(n, old_nodes) for n in range(pods - len(plants))]
    with ThreadPoolExecutor(_CONNECTIONS) as threads:
        created = threads.map(lambda name: _create_node(cluster, name), names)
        times = dict(zip(names, created, strict=True))
        for results in (
            threads.map(lambda name: _create_request(cluster, name, times[name]), REQUESTS),
            threads.map(
                lambda each: _plant(cluster, each[0], each[1], times[each[0].node]), plants
            ),
            threads.map(lambda pod: _create_pod(cluster, pod), ordinary),
        ):
            list(results)  # Raises what a thread has raised.


def plant(cluster: KubeCluster, pod: Plant, namespace: str) -> None:
    """Create a namespace with one planted pod, and the pod's node."""
    cluster.namespace(namespace)
    _plant(cluster, pod, namespace, _create_node(cluster, pod.node))


def _create_node(cluster: KubeCluster, name: str) -> datetime:
    """Create a node, and return the time of its creation."""
    runtime = NODE_RUNTIMES.get(name, "containerd://2.1.4")
    node = planted_symptoms.node(name, runtime, NODE_HANDLERS.get(name))
    created = cluster.create("/api/v1/nodes", node)
    return datetime.fromisoformat(created["metadata"]["creationTimestamp"])


def _create_request(cluster: KubeCluster, node: str, node_created: datetime) -> None:
    """Create the certificate request of a node as its kubelet does, and approve it."""
    user = f"system:node:{node}"
    as_kubelet = {"Impersonate-User": user, "Impersonate-Group": "system:nodes"}
    request = planted_symptoms.request(node, _pem(user))
    del request["spec"]["username"]  # The API server writes it.
    if request["spec"]["signerName"] == planted_symptoms.CLIENT_SIGNER:
        request["spec"]["usages"] = ["digital signature", "client auth"]
    status, created, _ = cluster.request("POST", _CSR_API, request, as_kubelet)
    assert status == 201, created
    if node != WAITING:
        approved = {**created, "status": planted_symptoms.approval(node_created)}
        answer = cluster.request("PUT", f"{_CSR_API}/csr-{node}/approval", approved)
        assert answer.status == 200, answer.body


def _plant(cluster: KubeCluster, plant: Plant, namespace: str, now: datetime) -> None:
    """Create a planted pod, its status and its events, relative to a time."""
    created = _create_pod(cluster, {**plant.pod(namespace), "status": plant.with_state(now)})
    for index in range(len(plant.events)):
        event = plant.event(index, namespace, created["metadata"]["uid"], now)
        cluster.create(f"/api/v1/namespaces/{namespace}/events", event)


def _create_pod(cluster: KubeCluster, pod: Json) -> Json:
    """Create a pod, and write its status if it has one."""
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
    created = cluster.create(path, pod)
    if "status" in pod:
        status = {"status": pod["status"]}
        answer = cluster.request("PATCH", f"{path}/{pod['metadata']['name']}/status", status)
        assert answer.status == 200, answer.body
    return created


def _pem(user: str) -> str:
    """Return a certificate request of a kubelet, as the API takes it."""
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.COMMON_NAME, user),
        ]
    )
    names = x509.SubjectAlternativeName([x509.DNSName("node.example")])
    builder = x509.CertificateSigningRequestBuilder().subject_name(name).add_extension(names, False)
    signed = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()


def _ordinary_pod(number: int, nodes: list[str]) -> Json:
    """Return a pod without a symptom. Pods of CI systems are about as large."""
    started = datetime.fromisoformat("2026-11-22T10:00:00+00:00")
    stamp = planted_symptoms.stamp(started)
    statuses = [
        planted_symptoms.container_status(
            name,
            {"terminated": {"exitCode": 0, "startedAt": stamp, "finishedAt": stamp}},
        )
        for name in ("prepare", "place-scripts")
    ]
    status: dict[str, Any] = {
        "phase": "Running",
        "initContainerStatuses": statuses,
        "containerStatuses": [
            planted_symptoms.container_status("main", {"running": {"startedAt": stamp}})
        ],
    }
    containers = [
        {
            "name": name,
            "image": f"registry.example/{name}:1",
            "command": ["sh", "-c", _SCRIPT],
            "env": [
                {"name": f"VARIABLE_{n}", "value": "a value of some length"} for n in range(20)
            ],
        }
        for name in ("prepare", "place-scripts", "main")
    ]
    metadata = {
        **planted_symptoms.owned_by("TaskRun", f"build-{number // 3}"),
        "name": f"ordinary-{number}",
        "namespace": NAMESPACES[number % len(NAMESPACES)],
    }
    spec = {
        "nodeName": nodes[number % len(nodes)],
        "restartPolicy": "Never",
        "initContainers": containers[:2],
        "containers": containers[2:],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    # A status takes a write of its own, so only some pods get one, to save time.
    return {**pod, "status": status} if number % 4 == 0 else pod
