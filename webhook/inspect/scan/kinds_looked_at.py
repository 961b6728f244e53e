"""Which kinds of the objects in the view of a cluster were looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sized

from webhook.cluster.rights import Right
from webhook.inspect.findings import Area, Looked
from webhook.inspect.installation import CONFIGURATIONS_RIGHT
from webhook.inspect.known_cluster import KnownCluster


def view_areas(cluster: KnownCluster, namespace: str | None) -> Iterator[Area]:
    """Yield the area of each kind, and that of the webhook configurations of an API server.

    `namespace` is the only one that is scanned, or None for all.
    """
    view = cluster.view
    limits = {
        each.resource: Area(
            each.resource,
            Looked.NOT_LOOKED_AT,
            each.other_cause,
            str(each.right) if each.is_denied else "",
        )
        for each in cluster.unread
    }
    # The scan of one namespace needs only this namespace, which the view then has.
    if not cluster.lists_namespaces and namespace is None:
        only = f"only {', '.join(sorted(view.namespaces)) or 'none'}"
        right = str(Right("list", "", "namespaces"))
        limits.setdefault("namespaces", Area("namespaces", Looked.PARTLY, only, right))
    kinds: dict[str, Sized] = {
        "nodes": view.nodes.all,
        "runtimeclasses": view.runtime_classes,
        "namespaces": view.namespaces,
        "settlepolicies": view.policies,
    }
    for kind, objects in kinds.items():
        absent = Area(kind, Looked.NOT_LOOKED_AT, "the manifests contain none")
        read = Area(kind, Looked.LOOKED_AT) if cluster.is_live or len(objects) else absent
        yield limits.get(kind, read)
    if cluster.calls is not None:
        configurations, right = CONFIGURATIONS_RIGHT.resource, str(CONFIGURATIONS_RIGHT)
        unread = Area(configurations, Looked.NOT_LOOKED_AT, right=right)
        yield Area(configurations, Looked.LOOKED_AT) if cluster.calls.readable else unread
