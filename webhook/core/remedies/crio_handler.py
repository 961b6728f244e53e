"""What a pod would lose under a RuntimeClass whose handler is one of CRI-O.

A handler has a smallest memory limit of its own, below which CRI-O creates no container (cri-o
`pkg/config/config.go`, `ValidateContainerMinMemory`), and a list of its own of the annotations that
CRI-O keeps (`allowed_annotations`). podsettle does not see the configuration of a node, so the
RuntimeClass that `podsettle node-config` prints states both.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import msgspec

from webhook.core.cel import all_of, indent, quote, quoted_list
from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.constants import (
    ANNOTATION_ALLOWED_ANNOTATIONS,
    ANNOTATION_MIN_MEMORY,
    SKIP_RELABEL_ANNOTATIONS,
)
from webhook.core.decision_input import (
    CRIO_ANNOTATION,
    CRIO_KEY,
    MAX_CRIO_ANNOTATIONS,
    PodFacts,
)
from webhook.core.pod import Quantity, is_set
from webhook.core.quantities import parse_quantity
from webhook.core.reasons import Reason

_DEFAULT_MIN_MEMORY = "12Mi"
"""What CRI-O accepts if a handler does not set `container_min_memory`."""
_DEFAULT_MIN_MEMORY_BYTES = Decimal(12 << 20)
LOSS_REASONS = frozenset({Reason.MEMORY_BELOW_MINIMUM, Reason.ANNOTATION_NOT_ALLOWED})
"""The reasons that `handler_loss` gives."""


class _Limits(msgspec.Struct):
    memory: Quantity | None = None


class _Resources(msgspec.Struct):
    limits: _Limits | None = None


_decode_resources = msgspec.json.Decoder(_Resources).decode


def handler_loss(
    pod: PodFacts, runtime_class: RuntimeClassInfo, *, is_crio: bool
) -> tuple[Reason, str] | None:
    """Return what the pod would lose under the class, as a reason and a message, or None.

    With `is_crio`, a class that states nothing has a handler of CRI-O with its defaults. Otherwise
    such a class may belong to any runtime. Raises one of DECODE_ERRORS.
    """
    smallest = runtime_class.min_memory or (_DEFAULT_MIN_MEMORY if is_crio else None)
    if smallest is not None and (limit := _limit_below(pod, smallest)) is not None:
        message = (
            f"the memory limit {limit} is below {smallest}, the smallest that the handler of "
            f"RuntimeClass {runtime_class.name!r} accepts"
        )
        return Reason.MEMORY_BELOW_MINIMUM, message
    allowed = runtime_class.allowed_annotations
    if allowed is None and is_crio:
        allowed = frozenset()
    if allowed is not None and (key := _dropped_annotation(pod, allowed)) is not None:
        message = (
            f"RuntimeClass {runtime_class.name!r} does not say that its handler allows {key}, "
            "which would have no effect"
        )
        return Reason.ANNOTATION_NOT_ALLOWED, message
    return None


def native_condition(*, is_crio: bool) -> str:
    """Return the condition under which `handler_loss` is None, in CEL. `params` is the class."""
    stated = f'params.metadata.?annotations[?"{ANNOTATION_MIN_MEMORY}"]'
    smallest = (
        f"quantity(isQuantity({stated}.orValue({quote(_DEFAULT_MIN_MEMORY)}))\n"
        f"  ? {stated}.orValue({quote(_DEFAULT_MIN_MEMORY)}) : {quote(_DEFAULT_MIN_MEMORY)})"
    )
    enough = (
        '[quantity(each.?resources.?limits[?"memory"].orValue("0"))].all(limit,\n'
        f'  limit.isLessThan(quantity("1")) || !limit.isLessThan({indent(indent(smallest))}))'
    )
    memory = all_of(
        f"[object.spec].all(each, {indent(enough)})",
        f"object.spec.containers.all(each, {indent(enough)})",
        f"object.spec.?initContainers.orValue([]).all(each, {indent(enough)})",
    )
    allowed = f'params.metadata.?annotations[?"{ANNOTATION_ALLOWED_ANNOTATIONS}"]'
    names = f'{quoted_list(SKIP_RELABEL_ANNOTATIONS)} + {allowed}.orValue("").split(",")'
    kept = (
        "object.metadata.?annotations.orValue({}).all(key,\n"
        f"  !key.matches({quote('^' + CRIO_ANNOTATION.pattern)})\n"
        f"  || ({names}).exists(each,\n"
        '    each.trim() != "" && key.startsWith(each.trim())))'
    )
    if is_crio:
        return all_of(memory, kept)
    return all_of(
        f"(!{stated}.hasValue() || ({indent(memory)}))",
        f"(!{allowed}.hasValue() || {indent(kept)})",
    )


def native_condition_of_workload() -> str:
    """Return the condition under which `other_workload` is None, in CEL."""
    return (
        "object.metadata.?annotations.orValue({}).all(key, !key.matches("
        f"{quote('^' + CRIO_KEY.pattern)})\n"
        f"  || {quoted_list(SKIP_RELABEL_ANNOTATIONS)}.exists(each, key.startsWith(each)))"
    )


def other_workload(pod: PodFacts) -> str | None:
    """Return an annotation with which the pod may activate a workload of CRI-O, or None.

    CRI-O applies one of a pod's workloads at random (`workloadGivenActivationAnnotation` iterates
    over a Go map), so a second one would at times take the place of the first. The annotation that
    a workload allows often activates it too, so each annotation for CRI-O counts.
    """
    return next(iter(_others(pod)), None)


def _others(pod: PodFacts) -> list[str]:
    """Return the pod's annotations for CRI-O apart from those that podsettle sets."""
    return [key for key in pod.crio_annotations if not key.startswith(SKIP_RELABEL_ANNOTATIONS)]


def _limit_below(pod: PodFacts, smallest: str) -> Quantity | None:
    """Return the first memory limit below an amount, or None."""
    least = parse_quantity(smallest)
    if least is None:
        least = _DEFAULT_MIN_MEMORY_BYTES
    for limit in _memory_limits(pod):
        amount = parse_quantity(str(limit))
        # CRI-O takes no limit from zero.
        if amount is not None and 0 < amount < least:
            return limit
    return None


def _memory_limits(pod: PodFacts) -> Iterator[Quantity]:
    """Yield the memory limits of the pod and of its containers."""
    # The kubelet gives the pod's limit to containers that have none (KEP-2837).
    for resources in (pod.resources, *(each.resources for each in pod.all_containers)):
        if not is_set(resources):
            continue
        limits = _decode_resources(resources).limits
        if limits is not None and limits.memory is not None:
            yield limits.memory


def _dropped_annotation(pod: PodFacts, allowed: frozenset[str]) -> str | None:
    """Return an annotation of the pod that CRI-O would drop, or None."""
    # CRI-O's names are prefixes: a container's name follows some of them.
    kept = tuple(allowed)
    for key in _others(pod):
        if CRIO_ANNOTATION.match(key) and not key.startswith(kept):
            return key
    if len(pod.crio_annotations) > MAX_CRIO_ANNOTATIONS:
        return pod.crio_annotations[-1]
    return None
