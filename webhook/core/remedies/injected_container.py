"""The fields that all init containers injected by podsettle have in common.

An injected container must pass the checks that the pod's own containers pass: PodSecurity
`restricted`, a ResourceQuota, a LimitRange, OpenShift's SCC, rules of Kyverno.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import to_builtins

from webhook.core.constants import HELPER_IN_IMAGE
from webhook.core.decision_input import PodFacts
from webhook.core.patch.builder import PodPatch
from webhook.core.pod import (
    MAX_QUANTITY_CHARACTERS,
    ContainerFields,
    SecurityContext,
    WireStruct,
    is_set,
)
from webhook.core.remedies.base import Context


def injected_container(
    name: str,
    context: Context,
    pod: PodFacts,
    template: ContainerFields | None,
    options: Sequence[str],
) -> dict[str, Any]:
    """Return an init container that starts the helper in its image, without arguments.

    `template` is the pod's container for which the init container is injected. The init container
    gets the resources of the template. So the pod keeps its QoS class, the init container satisfies
    a ResourceQuota and a LimitRange as the template does, and the scheduler reserves no more for
    the pod. The init container has no runAsUser unless the template has one, because OpenShift
    assigns the user. `options` are those of the helper, up to and including `--`, for another
    helper that it starts. If there are none, it starts only one.
    """
    new_container: dict[str, Any] = {
        "name": name,
        "image": context.cluster.linger_image or "",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": _security_context(pod, template),
    }
    resources = _resources(pod, template)
    if resources:
        new_container["resources"] = resources
    new_container["command"] = [HELPER_IN_IMAGE, *options, *([HELPER_IN_IMAGE] if options else ())]
    return new_container


def short_container_options(pod: PodFacts, context: Context, patch: PodPatch) -> list[str]:
    """Return the helper's options, up to and including `--`, for an init container that ends soon.

    It may end too quickly for a node that needs postInitSleep, so the helper keeps it alive for the
    default minimum lifetime of that remedy. The list is empty if no node needs that.
    """
    spec = context.spec_with_runtime_class(pod, patch)
    if not context.cluster.nodes.need("postInitSleep", spec):
        return []
    return ["--min-lifetime", "500ms", "--"]


_NO_SECURITY_CONTEXT = SecurityContext()
_MAX_CAPABILITIES, _MAX_CAPABILITY_CHARACTERS = 64, 64
"""The maximum number and length of dropped capabilities that are copied. Linux has 41. Webhooks run
before API validation, so a client can choose any number."""


def _security_context(pod: PodFacts, template: ContainerFields | None) -> dict[str, Any]:
    """Return a security context that passes PodSecurity `restricted` if the pod's containers do.

    If the pod and the template run as root, the injected container may run as root too. It has a
    seccomp profile only if the template has one. Many SCCs, such as `anyuid` and OpenShift
    Pipelines' `pipelines-scc`, refuse any profile (openshift/apiserver-library-go
    `securitycontextconstraints/seccomp/strategy.go`). A profile of the whole pod is inherited.

    Rules of Kyverno look at each container: `require-non-root-groups` wants a runAsGroup of it
    where the pod has none, `drop-cap-net-raw` wants NET_RAW in its list beside ALL. So what the
    template sets of these is copied.
    """
    pod_security = pod.security_context or _NO_SECURITY_CONTEXT
    own = (template.security_context if template else None) or _NO_SECURITY_CONTEXT
    security: dict[str, Any] = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL", *_other_drops(own)]},
        "readOnlyRootFilesystem": True,
    }
    if own.seccomp_profile is not None:
        security["seccompProfile"] = {"type": "RuntimeDefault"}
    # The kubelet does not start a root container with runAsNonRoot, which the pod may set.
    if pod_security.run_as_user != 0 or own.run_as_user:
        security["runAsNonRoot"] = True
        if not pod_security.run_as_user and own.run_as_user:
            security["runAsUser"] = own.run_as_user
    elif own.run_as_non_root is False:
        security["runAsNonRoot"] = False
    if not pod_security.run_as_group and own.run_as_group:
        security["runAsGroup"] = own.run_as_group
    return security


def _other_drops(security: SecurityContext) -> list[str]:
    """Return the capabilities that a container drops beside all, as it names them. Bounded."""
    dropped = security.capabilities.drop if security.capabilities else None
    if not dropped or len(dropped) > _MAX_CAPABILITIES:
        return []
    others = dict.fromkeys(name for name in dropped if name.upper() != "ALL")
    return [] if any(len(name) > _MAX_CAPABILITY_CHARACTERS for name in others) else list(others)


_COMMON_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
_MAX_RESOURCES_BYTES = 4096
"""The maximum size of the `resources` of all containers together for which other names are copied
too. Webhooks run before API validation, so a client can choose any number of names. Thirty
containers with CPU, memory and a device each have about 4 KiB."""

_CopiedQuantity: TypeAlias = (
    Annotated[str, msgspec.Meta(max_length=MAX_QUANTITY_CHARACTERS)] | int | float
)
_Amounts: TypeAlias = dict[str, _CopiedQuantity | None]


class _CommonAmounts(WireStruct):
    cpu: _CopiedQuantity | None = None
    memory: _CopiedQuantity | None = None
    ephemeral_storage: _CopiedQuantity | None = msgspec.field(
        default=None, name="ephemeral-storage"
    )


T = TypeVar("T", bound=_Amounts | _CommonAmounts)


class _Resources(msgspec.Struct, Generic[T]):
    limits: T | None = None
    requests: T | None = None


_NO_RESOURCES = msgspec.Raw(b"{}")
_decode_resources = msgspec.json.Decoder(_Resources[_Amounts]).decode
_decode_common_resources = msgspec.json.Decoder(_Resources[_CommonAmounts]).decode


def _resources(pod: PodFacts, template: ContainerFields | None) -> dict[str, _Amounts]:
    """Return the limits and requests of the template that the injected container also gets.

    CPU, memory and ephemeral storage are always copied. Devices and huge pages are copied only if
    every container of the pod has limits for them. A LimitRange may then require them of each
    container, although the helper does not use them. If the containers have too many names, devices
    are not copied.
    """
    # Most containers have `resources: {}`, because the API server encodes the empty field too.
    if template is None or template.resources == _NO_RESOURCES or not is_set(template.resources):
        return {}
    limits, requests = _amounts(template.resources)
    copied_names = _COMMON_RESOURCES
    if not limits.keys() <= _COMMON_RESOURCES:
        copied_names = copied_names.union(_names_in_all_limits(pod))
    copied = {
        "limits": {k: v for k, v in limits.items() if k in copied_names},
        "requests": {k: v for k, v in requests.items() if k in copied_names},
    }
    return {key: amounts for key, amounts in copied.items() if amounts}


def _names_in_all_limits(pod: PodFacts) -> frozenset[str]:
    """Return the names for which every container has a limit. Raises one of DECODE_ERRORS."""
    containers = pod.all_containers
    if sum(len(container.resources) for container in containers) > _MAX_RESOURCES_BYTES:
        return frozenset()
    first, *others = (frozenset(_amounts(container.resources)[0]) for container in containers)
    return first.intersection(*others)


def _amounts(resources: msgspec.Raw) -> tuple[_Amounts, _Amounts]:
    """Return the limits and requests in `resources`. Raises one of DECODE_ERRORS."""
    if not is_set(resources):
        return {}, {}
    if len(resources) <= _MAX_RESOURCES_BYTES:
        decoded = _decode_resources(resources)
        return decoded.limits or {}, decoded.requests or {}
    common = _decode_common_resources(resources)
    return to_builtins(common.limits) or {}, to_builtins(common.requests) or {}
