"""The init containers of service meshes, and their effect on the connections of other containers.

The names are those that the injectors of Istio, Linkerd, Kuma, Consul, AWS App Mesh and Open
Service Mesh use. The init container of another mesh is found by the capability that it needs.
"""

from __future__ import annotations

from webhook.core.constants import OWN_CONTAINERS
from webhook.core.decision_input import NamespaceFacts, PodFacts
from webhook.core.pod import ContainerFields, is_sidecar

_REDIRECTING = frozenset(
    {
        *("istio-init", "linkerd-init", "kuma-init", "osm-init", "proxyinit"),
        *("consul-connect-inject-init", "consul-mesh-init"),
    }
)
"""After one of these init containers has run, the pod's connections go to the mesh's proxy."""
_REDIRECTING_PREFIX = "consul-connect-inject-init-"
"""Consul adds an init container for each service of a pod, if the pod has more than one."""

_VALIDATING = frozenset({"istio-validation", "linkerd-network-validator", "kuma-validation"})
"""In a pod with one of these init containers, a CNI plugin redirects connections to the proxy from
the start."""

_PLUGIN_SIGNS = (
    ("istio-init", frozenset({"istio-validation"})),
    ("linkerd-init", frozenset({"linkerd-network-validator", "linkerd-proxy"})),
    ("kuma-init", frozenset({"kuma-validation", "kuma-sidecar"})),
)
"""The containers by which a pod shows that a CNI plugin redirects its connections. The plugin does
not if the pod has the init container in front of them. The plugins of Linkerd and Kuma look for the
proxy themselves, and not every pod with it has an init container that validates (kuma
`app/cni/pkg/cni/kubernetes_linux.go`, linkerd2-proxy-init `cni-plugin/main.go`)."""

_PROXIES = frozenset({"istio-proxy", "linkerd-proxy", "kuma-sidecar", "consul-dataplane"})
"""The proxies, if they run as native sidecars."""

_REDIRECTING_CAPABILITIES = frozenset({"ALL", "NET_ADMIN", "NET_RAW"})


def is_mesh_init_container(container: ContainerFields) -> bool:
    """Return whether an init container belongs to a mesh, or may redirect the pod's connections.

    Such a container is never wrapped, because it relies on details such as a mount, an exact
    command or the capabilities of its file, which a wrapper changes. A pod whose network set-up
    fails is worse off than a pod that is retried.
    """
    return container.name in _VALIDATING or _looks_redirecting(container)


def connecting_places(pod: PodFacts) -> range:
    """Return the indices at which an init container can connect to something outside the pod.

    If a CNI plugin redirects connections from the start, these are the indices behind the proxy. If
    the proxy starts with the regular containers, the mesh blocks every init container. Otherwise
    they end with the index of the first init container that may redirect connections, in front of
    which another one can be inserted. A privileged one that ends may redirect them too. Most of
    these do something else, but a gate in front of one does no harm.
    """
    inits = pod.init_containers or ()
    if is_behind_proxy(pod):
        proxies = (index for index, each in enumerate(inits) if each.name in _PROXIES)
        return range(next(proxies, len(inits)) + 1, len(inits) + 1)
    redirecting = (index for index, each in enumerate(inits) if _may_redirect(each))
    return range(next(redirecting, len(inits)) + 1)


def is_behind_proxy(pod: PodFacts) -> bool:
    """Return whether a CNI plugin redirects the connections of every init container to a proxy."""
    if pod.asks_plugin_to_redirect:
        return True
    names = {each.name for each in pod.all_containers}
    return any(
        init_container not in names and not signs.isdisjoint(names)
        for init_container, signs in _PLUGIN_SIGNS
    )


def accepts_every_connection(pod: PodFacts, namespace: NamespaceFacts) -> bool:
    """Return whether ztunnel, a proxy on the node, accepts the connections.

    Pods of the node's network, and pods with the proxy of the sidecar mode, are not in that mode
    (istio `cni/pkg/util/podutil.go`, `PodRedirectionEnabled`).
    """
    is_ambient = namespace.is_ambient if pod.is_ambient is None else pod.is_ambient
    return (
        is_ambient
        and not pod.host_network
        and not any(each.name == "istio-proxy" for each in pod.all_containers)
    )


def _may_redirect(container: ContainerFields) -> bool:
    if container.name in OWN_CONTAINERS:
        return False
    security = container.security_context
    return (
        _looks_redirecting(container)
        # A privileged sidecar is usually a daemon, such as Docker's. Its image is pulled while a
        # gate behind it waits.
        or (security is not None and bool(security.privileged) and not is_sidecar(container))
    )


def _looks_redirecting(container: ContainerFields) -> bool:
    """Return whether a container has the name of a mesh's or a capability to redirect connections.

    Runtimes accept a capability in any case, and CRI-O with the prefix `CAP_` too.
    """
    if container.name in _REDIRECTING or container.name.startswith(_REDIRECTING_PREFIX):
        return True
    security = container.security_context
    if security is None or security.capabilities is None:
        return False
    return any(
        name.upper().removeprefix("CAP_") in _REDIRECTING_CAPABILITIES
        for name in security.capabilities.add or ()
    )
