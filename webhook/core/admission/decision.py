"""The decision about a pod and its reasons, in the one form that every channel renders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from webhook.core.admission.outcome_texts import OutcomeTexts, ReasonCounts, texts_of
from webhook.core.admission.response import decode_patch, warnings_for
from webhook.core.constants import MAX_NOTE_BYTES
from webhook.core.images import ImageQuery
from webhook.core.patch.verify import Operation
from webhook.core.reasons import Outcome, Reason

_LONGEST_NOTES = {key: "x" * (size - len(key)) for key, size in MAX_NOTE_BYTES.items()}

T = TypeVar("T")


class _lazy(Generic[T]):  # noqa: N801 (a decorator)
    """A `functools.cached_property` without a lock.

    Up to Python 3.11 the lock takes a twentieth of the time of a decision that is not cached.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __get__(self, instance: Any, _owner: type) -> T:
        """Compute the value, and store it in the instance in place of this descriptor."""
        value = instance.__dict__[self._compute.__name__] = self._compute(instance)
        return value


class Decision(msgspec.Struct, frozen=True, dict=True):
    """The decision about one pod. podsettle allows every pod, unchanged if `patch` is empty.

    A cached decision answers many reviews, so the texts and JSON derived from it are cached too.
    The patch is kept in its encoded form only: its operations consist of a hundred objects, which
    every eviction from the cache would have to free.
    """

    outcomes: tuple[Outcome, ...] = ()
    patch: bytes = b""
    """The patch as the API requires it: JSON in base64."""
    policies: tuple[str, ...] = ()
    """The names of the policies that cover the pod."""
    missing_images: tuple[ImageQuery, ...] = ()
    """The images that must be looked up before a better decision is possible."""
    annotations: Mapping[str, str] = {}
    """The annotations that the patch sets."""
    unmet: tuple[Outcome, ...] = ()
    """The outcomes for remedies that policies with `action: Mutate` wanted, and the pod could not
    get. Each has a reason that warns."""

    @_lazy
    def needed_space(self) -> tuple[Mapping[str, str], int]:
        """What the pod must have space for: annotations, and the number of their characters.

        An earlier call can have left out the notes for lack of space. The notes of this call may be
        shorter. If they were added now, a second call would change a settled pod. So notes without
        another edit need the space of the longest ones.
        """
        added = self.annotations
        if added and added.keys() <= MAX_NOTE_BYTES.keys():
            added = _LONGEST_NOTES
        # To add up the lengths takes longer.
        return added, len("".join([*added, *added.values()]))

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations of the patch. Each call decodes them."""
        return decode_patch(self.patch)

    @property
    def warnings(self) -> list[str]:
        """The warnings that `kubectl` prints."""
        return warnings_for(self.outcomes)

    @_lazy
    def _texts(self) -> OutcomeTexts:
        return texts_of(self.outcomes)

    @_lazy
    def audit_annotations(self) -> dict[str, str]:
        """The annotations for the API server's audit log."""
        return self._texts.audit_annotations

    @_lazy
    def log_summary(self) -> str:
        """The audit annotations in one line, for the log."""
        return self._texts.log_summary

    @_lazy
    def reason_counts(self) -> ReasonCounts:
        """The number of outcomes by remedy and reason, for the metrics."""
        return self._texts.reason_counts

    @_lazy
    def applied_pairs(self) -> tuple[tuple[str, str], ...]:
        """The pairs of a policy and a remedy that the patch applies, for the metrics."""
        return self._texts.applied_pairs

    @_lazy
    def already_settled(self) -> bool:
        """Whether an earlier review settled the pod, so that this one has nothing to change.

        This is so if the API server reviews a pod again, after another webhook has changed it.
        """
        return not self.patch and any(
            outcome.reason is Reason.ALREADY_SETTLED for outcome in self.outcomes
        )

    @property
    def lacks_namespace(self) -> bool:
        """Whether nothing could be decided because the pod's namespace is unknown."""
        if self.policies:
            return False
        return any(outcome.reason is Reason.NAMESPACE_UNKNOWN for outcome in self.outcomes)

    @_lazy
    def texts_json(self) -> bytes:
        """A JSON fragment with the members that follow the patch in the response."""
        return self._texts.texts_json
