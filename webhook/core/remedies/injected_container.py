"""What every init container that podsettle injects has in common, whatever it does there.

It must pass whatever the pod's own containers pass: PodSecurity `restricted`, a ResourceQuota, a
LimitRange, OpenShift's SCC.
"""

from __future__ import annotations

from typing import Any

import msgspec

from webhook.core.pod import Container, Pod, is_set


def container(name: str, image: str, pod: Pod, served: Container | None) -> dict[str, Any]:
    """An init container of the helper's image, still without a command.

    Its resources are those of the container that it serves: that keeps the QoS class, satisfies a
    ResourceQuota and a LimitRange as that container does, and never raises what the scheduler
    reserves for the pod. No runAsUser: OpenShift assigns it.
    """
    made: dict[str, Any] = {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": _security_context(pod, served),
    }
    resources = _resources(pod, served)
    if resources:
        made["resources"] = resources
    return made


def _security_context(pod: Pod, served: Container | None) -> dict[str, Any]:
    security: dict[str, Any] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    pod_security = pod.spec.security_context
    own = served.security_context if served else None
    if pod_security is None or pod_security.run_as_user != 0:
        security["runAsNonRoot"] = True
    elif own is not None and own.run_as_non_root and own.run_as_user:
        # As the pod's own user, root, it could not start; its containers name another.
        security |= {"runAsNonRoot": True, "runAsUser": own.run_as_user}
    return security


_COUNTED = frozenset({"cpu", "memory", "ephemeral-storage"})


class _Resources(msgspec.Struct):
    limits: dict[str, Any] | None = None
    requests: dict[str, Any] | None = None


def _resources(pod: Pod, served: Container | None) -> dict[str, dict[str, Any]]:
    """Limits and requests of the served container.

    Devices and huge pages only where every container of the pod asks for them: then a LimitRange
    may demand them of each, else the helper has no use for them.
    """
    if served is None or not is_set(served.resources):
        return {}
    own = _decoded(served)
    wanted = _COUNTED
    if own.limits and not own.limits.keys() <= _COUNTED:
        everyone = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
        wanted = wanted.union(own.limits).intersection(
            *(_COUNTED.union(_decoded(container).limits or ()) for container in everyone)
        )
    copied = {
        "limits": {k: v for k, v in (own.limits or {}).items() if k in wanted},
        "requests": {k: v for k, v in (own.requests or {}).items() if k in wanted},
    }
    return {key: values for key, values in copied.items() if values}


def _decoded(container: Container) -> _Resources:
    if not is_set(container.resources):
        return _Resources()
    return msgspec.json.decode(container.resources, type=_Resources)
