"""The fields that all init containers injected by podsettle have in common.

An injected container must pass the checks that the pod's own containers pass: PodSecurity
`restricted`, a ResourceQuota, a LimitRange, OpenShift's SCC.
"""

from __future__ import annotations

from typing import Any

import msgspec

from webhook.core.decision_input import PodFacts
from webhook.core.pod import ContainerFields, is_set


def injected_container(
    name: str, image: str, pod: PodFacts, template: ContainerFields | None
) -> dict[str, Any]:
    """Return an init container with the helper's image, without a command.

    `template` is the pod's container for which the init container is injected. The init container
    gets the resources of the template. So the pod keeps its QoS class, the init container satisfies
    a ResourceQuota and a LimitRange as the template does, and the scheduler reserves no more for
    the pod. The init container usually has no runAsUser, because OpenShift assigns the user.
    """
    new_container: dict[str, Any] = {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": _security_context(pod, template),
    }
    resources = _resources(pod, template)
    if resources:
        new_container["resources"] = resources
    return new_container


def _security_context(pod: PodFacts, template: ContainerFields | None) -> dict[str, Any]:
    """Return a security context for PodSecurity `restricted`.

    If the pod and the template run as root, the injected container may run as root too.
    """
    security: dict[str, Any] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    pod_security = pod.security_context
    template_security = template.security_context if template else None
    if pod_security is None or pod_security.run_as_user != 0:
        security["runAsNonRoot"] = True
    elif template_security and template_security.run_as_non_root and template_security.run_as_user:
        # The template overrides the pod's user, which is root. The injected container needs the
        # same override, because the kubelet does not start a root container with runAsNonRoot.
        security |= {"runAsNonRoot": True, "runAsUser": template_security.run_as_user}
    return security


_COMMON_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})


_NO_RESOURCES = msgspec.Raw(b"{}")


class _Resources(msgspec.Struct):
    limits: dict[str, Any] | None = None
    requests: dict[str, Any] | None = None


def _resources(pod: PodFacts, template: ContainerFields | None) -> dict[str, dict[str, Any]]:
    """Return the limits and requests of the template that the injected container also gets.

    CPU, memory and ephemeral storage are always copied. Devices and huge pages are copied only if
    every container of the pod has limits for them. A LimitRange may then require them of each
    container, although the helper does not use them.
    """
    # Most containers have `resources: {}`, because the API server encodes the empty field too.
    if template is None or template.resources == _NO_RESOURCES or not is_set(template.resources):
        return {}
    resources = _decode_resources(template)
    copied_names = _COMMON_RESOURCES
    if resources.limits and not resources.limits.keys() <= _COMMON_RESOURCES:
        containers = (*(pod.init_containers or ()), *(pod.containers or ()))
        copied_names = copied_names.union(resources.limits).intersection(
            *(
                _COMMON_RESOURCES.union(_decode_resources(container).limits or ())
                for container in containers
            )
        )
    copied = {
        "limits": {k: v for k, v in (resources.limits or {}).items() if k in copied_names},
        "requests": {k: v for k, v in (resources.requests or {}).items() if k in copied_names},
    }
    return {key: values for key, values in copied.items() if values}


def _decode_resources(container: ContainerFields) -> _Resources:
    if not is_set(container.resources):
        return _Resources()
    return msgspec.json.decode(container.resources, type=_Resources)
