"""Clusters with a kubeletGate policy, and the init containers of a pod."""

from __future__ import annotations

from typing import Any

from tests.support.factories import Json, container, init_containers, policy, view
from webhook.core.policy.snapshot import Snapshot

QUICK = container("prepare", "/entrypoint", "init")
HOST_IP = {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}
SETTLED = ["/linger", "--min-lifetime", "500ms", "--", "/linger"]


def make_view(*nodes: Json, beside: Json | None = None, **settings: Any) -> Snapshot:
    return view(policy(remedies={"kubeletGate": settings, **(beside or {})}), nodes=nodes)


def init_container_names(after: Json) -> list[str]:
    return [each["name"] for each in init_containers(after)]


def sidecar(name: str) -> Json:
    return container(name, restartPolicy="Always")


GATE, HELPER = "podsettle-kubelet-gate", "podsettle-linger"
