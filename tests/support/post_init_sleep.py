"""Clusters with a postInitSleep policy, and the init containers of a pod."""

from __future__ import annotations

from typing import Any

from tests.support.factories import Json, container, policy, view
from webhook.core.defects.versions import Version
from webhook.core.policy.snapshot import Snapshot

QUICK = container("prepare", "/entrypoint", "init")
SHELL = container("script", "/bin/sh", "-c", "exit 3")
MOUNT = {"name": "podsettle-linger", "mountPath": "/podsettle", "readOnly": True}
HELPER = "podsettle-linger"
HELPER_VOLUME = {"name": HELPER, "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}


def make_view(*nodes: Json, server: Version | None = None, **settings: Any) -> Snapshot:
    return view(policy(remedies={"postInitSleep": settings}), nodes=nodes, server=server)


def container_names(containers: list[Json]) -> list[str]:
    return [each["name"] for each in containers]


SMALL = {"cpu": "5m", "memory": "5Mi"}
EQUAL = {"limits": SMALL, "requests": SMALL}
