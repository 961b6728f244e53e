"""Explanations of objects in manifests, without a file and without a process."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

from webhook.cluster.manifests import Manifests, read_manifests
from webhook.inspect.explain.explanation import explain
from webhook.inspect.explain.report import Explanation
from webhook.inspect.explain.target import ObjectTarget, parse_target
from webhook.inspect.known_cluster import KnownCluster
from webhook.inspect.object_readers import DumpReader


def manifests(*documents: dict[str, Any]) -> Manifests:
    """Return manifests with some objects."""
    listed = {"apiVersion": "v1", "kind": "List", "items": documents}
    return read_manifests([Path("-")], io.BytesIO(json.dumps(listed).encode()))


def explained(target: str, known: KnownCluster, *documents: dict[str, Any]) -> Explanation:
    """Return the explanation of one of the objects in the namespace `ci`."""
    parsed = parse_target(target)
    assert isinstance(parsed, ObjectTarget)
    reader = DumpReader(manifests(*documents))
    return asyncio.run(explain(reader, parsed, "ci", known))
