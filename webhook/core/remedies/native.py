"""What a native policy can do of a remedy: its condition and its patch as CEL expressions.

The API server evaluates a native policy itself (MutatingAdmissionPolicy, KEP-3962). Such a policy
sees the pod, its namespace and one parameter object, and nothing else of the cluster.
`webhook.core.export` makes policies of these expressions.

A patch whose result does not decode is an error that denies the pod, even with `failurePolicy:
Ignore` (kubernetes `mutating/patch/json_patch.go`). So an expression puts only texts at constant
paths. A value is never a list of Object values, for which Kubernetes 1.36.2 panics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from webhook.core.cel import CONTAINERS
from webhook.core.cluster.view import ClusterView

S = TypeVar("S")
"""The type of a remedy's settings."""


class NotNativeError(Exception):
    """Raised if no native policy can do what settings ask for. The text says why, in a clause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeRemedy:
    """A remedy with given settings, in CEL.

    The expressions read the pod as `object` and the RuntimeClass of the settings as `params`.
    """

    condition: str
    """Whether the remedy has something to change. It names no variables, because match conditions
    have none."""
    patch: tuple[str, ...]
    """Expressions of lists of JSONPatch, which are evaluated only if the condition holds. The pod
    then has `metadata.annotations`."""
    warning: str = ""
    """A reason with which the remedy has no effect, or an empty string. Empty if there is none."""


@dataclass(frozen=True, slots=True)
class Native(Generic[S]):
    """How a remedy is expressed in a native policy."""

    phrase: str
    """A part of the remedy's effect with any settings, which the effect of no other remedy has.

    Several native policies write one summary of the pod, in any order. They recognise the clauses
    by these phrases, and put them in the order of the remedies."""
    form: Callable[[S, ClusterView], NativeRemedy]
    """Return the remedy with given settings, as far as the cluster is known when the policy is
    made. Raises NotNativeError."""
    limits: str = ""
    """What it does only in a native policy, or not there, as a clause for the documentation."""


def set_field(path: str, value: str) -> str:
    """Return a list of one JSONPatch that sets a text at a path without characters to escape."""
    return f'[JSONPatch{{op: "add", path: "{path}", value: {value}}}]'


def set_annotation(key: str, value: str) -> str:
    """Return a list of one JSONPatch that sets an annotation. `value` is an expression."""
    path = f'"/metadata/annotations/" + jsonpatch.escapeKey("{key}")'
    return f'[JSONPatch{{op: "add", path: {path}, value: {value}}}]'


HAS_PERSISTENT_VOLUME = f"""\
object.spec.?volumes.orValue([]).exists(volume, (has(volume.ephemeral)
    || has(volume.persistentVolumeClaim)
      && !volume.persistentVolumeClaim.?readOnly.orValue(false))
  && {CONTAINERS}
    .exists(c, c.?volumeMounts.orValue([]).exists(mount, mount.name == volume.name)))"""
"""`PodFacts.has_persistent_volume` in CEL."""
