"""The init containers of service meshes, and where in a pod they leave the network reachable.

The names are those that the injectors of Istio, Linkerd and Kuma give.
"""

from __future__ import annotations

from collections.abc import Sequence

from webhook.core.pod import Container

_INTERCEPTING = frozenset({"istio-init", "linkerd-init", "kuma-init"})
"""Once one of these has run, the pod's connections go to the mesh's proxy."""

_VALIDATING = frozenset({"istio-validation", "linkerd-network-validator", "kuma-validation"})
"""In a pod with one of these, a CNI plugin redirects connections to the proxy from the start."""

INIT_CONTAINERS = _INTERCEPTING | _VALIDATING
"""Never wrapped: a wrapper breaks what they rely on, such as a mount or an exact command. A pod
whose network set-up fails is worse off than a pod that is retried."""

_PROXIES = frozenset({"istio-proxy", "linkerd-proxy", "kuma-sidecar"})
"""The proxies, if they run as native sidecars."""


def intercepting_index(init_containers: Sequence[Container]) -> int | None:
    """Return the index of the init container that redirects connections to the mesh's proxy."""
    return _first_index(init_containers, _INTERCEPTING)


def blocks_init_containers(init_containers: Sequence[Container]) -> bool:
    """Return whether the mesh prevents every init container from connecting to anything.

    It does if a CNI plugin redirects connections to a proxy that starts with the regular
    containers.
    """
    return _is_behind_cni(init_containers) and _proxy_index(init_containers) is None


def can_connect(init_containers: Sequence[Container], index: int) -> bool:
    """Return whether the init container at an index can connect to something outside the pod."""
    intercepting = intercepting_index(init_containers)
    if intercepting is not None:
        return index < intercepting
    return not _is_behind_cni(init_containers) or index > (_proxy_index(init_containers) or 0)


def _is_behind_cni(init_containers: Sequence[Container]) -> bool:
    return _first_index(init_containers, _VALIDATING) is not None


def _proxy_index(init_containers: Sequence[Container]) -> int | None:
    return _first_index(init_containers, _PROXIES)


def _first_index(containers: Sequence[Container], names: frozenset[str]) -> int | None:
    return next((i for i, container in enumerate(containers) if container.name in names), None)
