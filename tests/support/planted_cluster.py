"""A cluster with thousands of pods, among them those of `tests.support.planted_symptoms`."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import aiohttp
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
    asyncio.run(_fill(cluster, pods, nodes))


def plant(cluster: KubeCluster, pod: Plant, namespace: str) -> None:
    """Create a namespace with one planted pod, and the pod's node."""
    cluster.namespace(namespace)
    asyncio.run(_plant(cluster, pod, namespace))


async def _plant(cluster: KubeCluster, pod: Plant, namespace: str) -> None:
    async with _connected(cluster) as writer:
        created = await writer.create_node(pod.node)
        await writer.plant(pod, namespace, {pod.node: created})


async def _fill(cluster: KubeCluster, pods: int, nodes: int) -> None:
    async with _connected(cluster) as writer:
        names = [*NODE_RUNTIMES, *(f"node-{n}" for n in range(nodes - len(NODE_RUNTIMES)))]
        created = await asyncio.gather(*(writer.create_node(name) for name in names))
        times = dict(zip(names, created, strict=True))
        await asyncio.gather(*(writer.create_request(name, times[name]) for name in REQUESTS))
        plants = [(plant, each) for plant in (*PLANTS, *LOOK_ALIKES) for each in NAMESPACES]
        await asyncio.gather(*(writer.plant(each, where, times) for each, where in plants))
        # Their containers started long before new nodes got their certificates.
        old_nodes = [name for name in names if name not in REQUESTS]
        ordinary = [_ordinary_pod(n, old_nodes) for n in range(pods - len(plants))]
        await asyncio.gather(*(writer.create_pod(pod) for pod in ordinary))


@asynccontextmanager
async def _connected(cluster: KubeCluster) -> AsyncIterator[_Writer]:
    context = ssl.create_default_context(cafile=cluster.ca_file)
    connector = aiohttp.TCPConnector(ssl=context, limit=_CONNECTIONS)
    headers = {"Authorization": f"Bearer {cluster.token}"}
    async with aiohttp.ClientSession(cluster.url, connector=connector, headers=headers) as session:
        yield _Writer(session)


class _Writer:
    """Writes of many objects at the same time."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def send(
        self, method: str, path: str, body: Json, headers: dict[str, str] | None = None
    ) -> Json:
        kind = "merge-patch+json" if method == "PATCH" else "json"
        sent = {"Content-Type": f"application/{kind}", **(headers or {})}
        data = json.dumps(body)
        async with self._session.request(method, path, data=data, headers=sent) as response:
            answer: Json = await response.json()
            assert response.status in (200, 201), f"{method} {path}: {answer}"
            return answer

    async def create_node(self, name: str) -> datetime:
        """Create a node, and return the time of its creation."""
        runtime = NODE_RUNTIMES.get(name, "containerd://2.1.4")
        node = planted_symptoms.node(name, runtime, NODE_HANDLERS.get(name))
        created = await self.send("POST", "/api/v1/nodes", node)
        return datetime.fromisoformat(created["metadata"]["creationTimestamp"])

    async def create_request(self, node: str, node_created: datetime) -> None:
        """Create the certificate request of a node as its kubelet does, and approve it."""
        user = f"system:node:{node}"
        as_kubelet = {"Impersonate-User": user, "Impersonate-Group": "system:nodes"}
        request = planted_symptoms.request(node, _pem(user))
        del request["spec"]["username"]  # The API server writes it.
        if request["spec"]["signerName"] == planted_symptoms.CLIENT_SIGNER:
            request["spec"]["usages"] = ["digital signature", "client auth"]
        created = await self.send("POST", _CSR_API, request, as_kubelet)
        if node != WAITING:
            approved = {**created, "status": planted_symptoms.approval(node_created)}
            await self.send("PUT", f"{_CSR_API}/csr-{node}/approval", approved)

    async def plant(self, plant: Plant, namespace: str, node_created: dict[str, datetime]) -> None:
        """Create a planted pod, its status and its events."""
        now = node_created[plant.node]
        created = await self.create_pod(plant.pod(namespace), plant.with_state(now))
        uid = created["metadata"]["uid"]
        for index in range(len(plant.events)):
            event = plant.event(index, namespace, uid, now)
            await self.send("POST", f"/api/v1/namespaces/{namespace}/events", event)

    async def create_pod(self, pod: Json, status: Json | None = None) -> Json:
        """Create a pod, and write its status if it has one."""
        status = status or pod.pop("status", None)
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
        created = await self.send("POST", path, pod)
        if status is not None:
            name = pod["metadata"]["name"]
            await self.send("PATCH", f"{path}/{name}/status", {"status": status})
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
