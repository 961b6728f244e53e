"""The reasons for which the API server would reject a pod because of its RuntimeClass.

The in-tree RuntimeClass plugin runs again after a webhook changed the pod. It merges the class's
nodeSelector and tolerations into the pod and sets its overhead. It rejects the pod if the two
disagree (kubernetes `plugin/pkg/admission/runtimeclass/admission.go`). podsettle makes the same
checks first, and skips the remedy instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from webhook.core.cluster.runtime_classes import RuntimeClassInfo
from webhook.core.patch.builder import PodPatch
from webhook.core.pod import PodSpec
from webhook.core.reasons import Reason

_QUANTITY = re.compile(r"([+-]?[0-9.]+)(?:[eE]([+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)
_MAX_QUANTITY_CHARACTERS = 100
"""A longer quantity is compared as text. The API server writes at most about thirty characters, and
Python rejects numbers of more than 4,300 digits."""
_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal("1e3"),
    "M": Decimal("1e6"),
    "G": Decimal("1e9"),
    "T": Decimal("1e12"),
    "P": Decimal("1e15"),
    "E": Decimal("1e18"),
    "Ki": Decimal(1 << 10),
    "Mi": Decimal(1 << 20),
    "Gi": Decimal(1 << 30),
    "Ti": Decimal(1 << 40),
    "Pi": Decimal(1 << 50),
    "Ei": Decimal(1 << 60),
}


def rejection_reason(
    wanted: str, found: RuntimeClassInfo | None, pod: PodSpec, patch: PodPatch
) -> tuple[Reason, str] | None:
    """Return why the pod cannot get the class `wanted`, as a reason and a sentence, else None.

    `found` is the class in the cluster. `patch` has the class that an earlier remedy has set.
    """
    if pod.runtime_class_name:
        message = f"the pod already names RuntimeClass {pod.runtime_class_name!r}"
        return Reason.RUNTIME_CLASS_PRESET, message
    if patch.runtime_class_name not in (None, wanted):
        message = f"another remedy puts the pod under RuntimeClass {patch.runtime_class_name!r}"
        return Reason.RUNTIME_CLASS_CONFLICT, message
    if found is None:
        return Reason.RUNTIME_CLASS_MISSING, f"RuntimeClass {wanted!r} does not exist"
    if pod.overhead and not _same_quantities(pod.overhead, found.overhead):
        message = f"the pod's overhead is not that of RuntimeClass {wanted!r}"
        return Reason.RUNTIME_CLASS_CONFLICT, message
    for key, value in found.node_selector.items():
        have = (pod.node_selector or {}).get(key, value)
        if have != value:
            message = (
                f"RuntimeClass {wanted!r} wants nodeSelector {key}={value}, the pod has {have}"
            )
            return Reason.RUNTIME_CLASS_CONFLICT, message
    if pod.node_name and found.node_selector:
        # The kubelet of that node refuses a pod whose nodeSelector it does not match.
        message = (
            f"the pod is bound to node {pod.node_name!r} and RuntimeClass {wanted!r} chooses nodes"
        )
        return Reason.RUNTIME_CLASS_CONFLICT, message
    return None


def _same_quantities(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.keys() == other.keys() and all(
        _quantity(str(one[key])) == _quantity(str(other[key])) for key in one
    )


def _quantity(text: str) -> Decimal | str:
    """Return a Kubernetes quantity as a number (`0.25` equals `250m`), or any other text as is."""
    found = _QUANTITY.fullmatch(text) if len(text) <= _MAX_QUANTITY_CHARACTERS else None
    if not found or found[1].count(".") > 1:
        return text
    number, exponent, suffix = found.groups()
    try:
        return Decimal(number).scaleb(int(exponent or 0)) * _SUFFIXES.get(suffix or "", Decimal(1))
    except ArithmeticError:
        return text
