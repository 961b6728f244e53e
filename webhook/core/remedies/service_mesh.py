"""The init containers of service meshes, by the names that their injectors give them."""

from __future__ import annotations

INTERCEPTING = frozenset({"istio-init", "linkerd-init", "kuma-init"})
"""From when one of these has run, the pod's connections go to the mesh's proxy."""

VALIDATING = frozenset({"istio-validation", "linkerd-network-validator", "kuma-validation"})
"""With one of these, a CNI plugin has the pod's connections go there from the beginning."""

INIT_CONTAINERS = INTERCEPTING | VALIDATING
"""Never wrapped. They need what a wrapper takes away (a mount, an exact command), and a pod whose
network set-up fails is worse off than one that is retried."""

PROXIES = frozenset({"istio-proxy", "linkerd-proxy", "kuma-sidecar"})
"""The proxies, where they are native sidecars."""
