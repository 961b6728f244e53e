"""The received values of the fields that a patch may set, by their paths in the pod."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from webhook.core.patch.verify import PatchError
from webhook.core.pod import SpecFields
from webhook.core.pod_facts import PodFacts


def field_segments(path: str) -> list[str]:
    """Return the segments of the path of a field, without `/spec`."""
    return path.split("/")[2:]


def received_values(pod: PodFacts, path: str) -> Iterator[Any]:
    """Yield the received value of each segment of a path below `/spec`, until one is absent.

    An empty text counts as absent, as in the API server. Raises PatchError if the path contains a
    field that `webhook.core.pod` does not declare.
    """
    struct: Any = SpecFields
    value: Any = pod
    for segment in field_segments(path):
        attribute = _attributes(struct).get(segment)
        if attribute is None:
            raise PatchError(f"patch self-check failed: {path} is not a declared field")
        value = getattr(value, attribute)
        if value is None or value == "":
            return
        yield value
        struct = type(value)


@cache
def _attributes(struct: Any) -> dict[str, str]:
    """Return the attributes of a struct by the names of their fields in JSON.

    Return an empty dict for a type that is no struct.
    """
    if not issubclass(struct, msgspec.Struct):
        return {}
    return {field.encode_name: field.name for field in msgspec.structs.fields(struct)}
