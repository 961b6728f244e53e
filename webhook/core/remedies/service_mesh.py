"""The init containers of service meshes, and their effect on the connections of other containers.

The names are those that the injectors of Istio, Linkerd and Kuma use.
"""

from __future__ import annotations

from collections.abc import Sequence

from webhook.core.pod import ContainerFields

_INTERCEPTING = frozenset({"istio-init", "linkerd-init", "kuma-init"})
"""After one of these init containers has run, the pod's connections go to the mesh's proxy."""

_VALIDATING = frozenset({"istio-validation", "linkerd-network-validator", "kuma-validation"})
"""In a pod with one of these init containers, a CNI plugin redirects connections to the proxy from
the start."""

MESH_INIT_CONTAINERS = _INTERCEPTING | _VALIDATING
"""The init containers of meshes. They are never wrapped, because they rely on details such as a
mount or an exact command, which a wrapper changes. A pod whose network set-up fails is worse off
than a pod that is retried."""

_PROXIES = frozenset({"istio-proxy", "linkerd-proxy", "kuma-sidecar"})
"""The proxies, if they run as native sidecars."""


def intercepting_index(init_containers: Sequence[ContainerFields]) -> int | None:
    """Return the index of the init container that redirects connections to the mesh's proxy."""
    return _first_index(init_containers, _INTERCEPTING)


def blocks_init_containers(init_containers: Sequence[ContainerFields]) -> bool:
    """Return whether the mesh blocks the connections of every init container.

    This happens if a CNI plugin redirects connections to a proxy that starts with the regular
    containers.
    """
    return _is_behind_cni(init_containers) and _proxy_index(init_containers) is None


def is_behind_proxy(init_containers: Sequence[ContainerFields]) -> bool:
    """Return whether a CNI plugin redirects the connections of every init container to a proxy."""
    return intercepting_index(init_containers) is None and _is_behind_cni(init_containers)


def can_connect(init_containers: Sequence[ContainerFields], index: int) -> bool:
    """Return whether the init container at an index can connect to something outside the pod."""
    intercepting = intercepting_index(init_containers)
    if intercepting is not None:
        return index < intercepting
    return not _is_behind_cni(init_containers) or index > (_proxy_index(init_containers) or 0)


def _is_behind_cni(init_containers: Sequence[ContainerFields]) -> bool:
    """Return whether a CNI plugin redirects the pod's connections from the start."""
    return _first_index(init_containers, _VALIDATING) is not None


def _proxy_index(init_containers: Sequence[ContainerFields]) -> int | None:
    return _first_index(init_containers, _PROXIES)


def _first_index(containers: Sequence[ContainerFields], names: frozenset[str]) -> int | None:
    return next((i for i, container in enumerate(containers) if container.name in names), None)
