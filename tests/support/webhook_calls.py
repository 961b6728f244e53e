"""Which webhooks the API server called for a pod, by its audit log."""

from __future__ import annotations

import json
import uuid

from tests.support.kube.cluster import Json, KubeCluster

MUTATION = "mutation.webhook.admission.k8s.io/"
"""How the API server's annotations in its audit log begin, one for each call of a webhook."""


def created(cluster: KubeCluster, pod: Json) -> tuple[Json, dict[str, str]]:
    """A pod as it would be created, and what the audit log says of the way there."""
    identifier = str(uuid.uuid4())
    headers = {"Audit-ID": identifier}
    status, made, _ = cluster.create_pod(pod, dry_run=True, headers=headers)
    assert status == 201, made
    return made, cluster.audit_event(identifier)["annotations"]


def calls(audited: dict[str, str]) -> list[tuple[str, bool]]:
    """The webhooks that were called, in turn, and whether each changed the pod."""
    found = sorted(
        (key, json.loads(said)) for key, said in audited.items() if key.startswith(MUTATION)
    )
    return [(said["webhook"], said["mutated"]) for _, said in found]
