"""Clusters with policies for gates, and the init containers of a pod."""

from __future__ import annotations

from typing import Any

from tests.support.factories import MODERN, Json, container, init_containers, policy, view
from webhook.core.policy.snapshot import Snapshot

GATE, START, HELPER = "podsettle-kubelet-gate", "podsettle-start-gate", "podsettle-linger"
QUICK = container("prepare", "/entrypoint", "init")
HOST_IP = {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}
SETTLED = ["/linger", "--min-lifetime", "500ms", "--", "/linger"]
AGENT = {"tcp": "169.254.170.23:80"}


def kubelet_view(*nodes: Json, beside: Json | None = None, **settings: Any) -> Snapshot:
    return view(policy(remedies={"kubeletGate": settings, **(beside or {})}), nodes=nodes)


def start_view(
    *targets: Json, nodes: tuple[Json, ...] = (MODERN,), beside: Json | None = None, **settings: Any
) -> Snapshot:
    gate = {"waitFor": [*targets] or [AGENT], **settings}
    return view(policy(remedies={"startGate": gate, **(beside or {})}), nodes=nodes)


def init_container_names(after: Json) -> list[str]:
    return [each["name"] for each in init_containers(after)]


def sidecar(name: str) -> Json:
    return container(name, restartPolicy="Always")
