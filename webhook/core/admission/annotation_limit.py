"""The API server's limit on the size of all annotations of an object."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from webhook.core.constants import MAX_NOTE_BYTES

_MAX_ANNOTATIONS_BYTES = 256 * 1024
"""Kubernetes `TotalAnnotationSizeLimitB`: the keys and values of all annotations together."""
_MAX_CHARACTER_BYTES = 4
"""The maximum number of bytes of one character in UTF-8."""
_LONGEST_NOTES = {key: "x" * size for key, size in MAX_NOTE_BYTES.items()}


def annotations_fit(received: Mapping[str, str] | None, added: Mapping[str, str]) -> bool:
    """Return whether a pod's annotations stay below the limit with those that a patch sets.

    An earlier call can have left out the notes for lack of space. The notes of this call may be
    shorter. If they were added now, a second call would change a settled pod. So notes without
    another edit need the space of the longest ones.
    """
    if not added:
        return True
    if added.keys() <= MAX_NOTE_BYTES.keys():
        added = _LONGEST_NOTES
    received = received or {}
    # To add up the lengths takes longer.
    characters = len("".join([*received, *received.values(), *added, *added.values()]))
    if characters * _MAX_CHARACTER_BYTES <= _MAX_ANNOTATIONS_BYTES:
        return True
    replaced = sum(len(key) + len(received[key]) for key in added if key in received)
    # A client can send a million annotations, which take longer to encode.
    if characters - replaced > _MAX_ANNOTATIONS_BYTES:
        return False
    texts = chain.from_iterable({**received, **added}.items())
    return sum(len(text.encode()) for text in texts) <= _MAX_ANNOTATIONS_BYTES
