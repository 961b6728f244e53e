"""The received values of the fields that a patch may set, by their paths in the pod."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, get_args

import msgspec

from webhook.core.decision_input import PodFacts
from webhook.core.patch.self_check import PatchError
from webhook.core.pod import SpecFields

_ABSENT: tuple[Any, ...] = (None, "", [], (), {})


def field_segments(path: str) -> list[str]:
    """Return the segments of the path of a field, without `/spec`."""
    return path.split("/")[2:]


def received_values(pod: PodFacts, path: str) -> Iterator[Any]:
    """Yield the received value of each segment of a path below `/spec`, until one is absent.

    An empty text, list or map counts as absent, as in the API server. Raises PatchError if the path
    contains a field that `webhook.core.pod` does not declare.
    """
    value: Any = pod
    for attribute in _attributes(path):
        value = getattr(value, attribute)
        if value in _ABSENT:
            return
        yield value


# The paths are those that remedies declare, so the cache stays small.
@cache
def _attributes(path: str) -> tuple[str, ...]:
    """Return the attributes of PodFacts and of its structs that a path names."""
    attributes: list[str] = []
    struct: type[msgspec.Struct] | None = SpecFields
    for segment in field_segments(path):
        fields = msgspec.structs.fields(struct) if struct else ()
        field = next((field for field in fields if field.encode_name == segment), None)
        if field is None:
            raise PatchError(f"patch self-check failed: {path} is not a declared field")
        attributes.append(field.name)
        structs = (each for each in (field.type, *get_args(field.type)) if isinstance(each, type))
        struct = next((each for each in structs if issubclass(each, msgspec.Struct)), None)
    return tuple(attributes)
