"""Which kinds of the objects in the view of a cluster were looked at."""

from __future__ import annotations

from collections.abc import Iterator

from webhook.cluster.rights import Right
from webhook.cluster.unread import Unread
from webhook.cluster.view_reader import Kind
from webhook.inspect.findings import Area, Looked
from webhook.inspect.known_cluster import KnownCluster
from webhook.inspect.webhook_configurations_api import CONFIGURATIONS_RESOURCE, CONFIGURATIONS_RIGHT

_KINDS: tuple[Kind, ...] = ("nodes", "runtimeclasses", "namespaces", "settlepolicies")


def view_areas(cluster: KnownCluster, namespace: str | None) -> Iterator[Area]:
    """Yield the area of each kind, and that of the webhook configurations of an API server.

    `namespace` is the only one that is scanned, or None for all.
    """
    limits = {each.resource: _unread_area(each) for each in cluster.unread}
    # The scan of one namespace needs only this namespace, which the view then has.
    if not cluster.lists_namespaces and namespace is None:
        limits.setdefault("namespaces", _named_area(cluster))
    for kind in _KINDS:
        area = limits.get(kind)
        if area is None and not cluster.is_live and not _count(cluster, kind):
            area = Area(kind, Looked.NOT_LOOKED_AT, "the manifests contain none")
        yield area or Area(kind, Looked.LOOKED_AT)
    if cluster.calls is not None:
        looked = Looked.LOOKED_AT if cluster.calls.readable else Looked.NOT_LOOKED_AT
        right = "" if cluster.calls.readable else str(CONFIGURATIONS_RIGHT)
        yield Area(CONFIGURATIONS_RESOURCE, looked, right=right)


def _count(cluster: KnownCluster, kind: Kind) -> int:
    view = cluster.view
    counts = {
        "nodes": len(view.nodes.all),
        "runtimeclasses": len(view.runtime_classes),
        "namespaces": len(view.namespaces),
        "settlepolicies": len(view.policies),
    }
    return counts[kind]


def _unread_area(unread: Unread) -> Area:
    right = str(unread.right) if unread.is_denied else ""
    return Area(unread.resource, Looked.NOT_LOOKED_AT, unread.other_cause, right)


def _named_area(cluster: KnownCluster) -> Area:
    """Return the area of namespaces that cannot be listed, of which some were read by name."""
    names = ", ".join(sorted(cluster.view.namespaces)) or "none"
    right = str(Right("list", "", "namespaces"))
    return Area("namespaces", Looked.PARTLY, f"only {names}", right)
