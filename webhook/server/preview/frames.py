"""What the server and the worker process of a preview send each other.

A frame is a length of four bytes, big-endian, and JSON. Each side sends the other:

1. the server: an Input, then the text itself;
2. the worker: a PolicyFound for each policy in the text, a PodFound for each pod, and TextRead. Or
   Refused, and the end;
3. for each pod, the server: a Decided. The worker: a part of the answer;
4. the worker: the last part of the answer, and the end.

The worker parses text from clients, so the server trusts none of its frames.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from msgspec import Raw

HEADER_BYTES = 4
"""The size of the length field of a frame."""
OUT_OF_MEMORY_EXIT_CODE = 3
"""The exit code of a worker that has reached its memory limit. The worker may then not have the
memory for a frame."""


MAX_PODS = 500
MAX_OBJECTS_WITHOUT_POD = 5_000
MAX_POLICIES = 200
"""The maximum number of policies in a text. They decide in place of those of the same names."""
MAX_POLICY_BYTES = 64 * 1024
"""The maximum length of a policy in a text, as JSON. The server validates and compiles each policy
in two steps, which take up to 5 ms each at this length."""
MAX_POLICIES_BYTES = 256 * 1024
"""The maximum length of all policies in a text. The server indexes their selectors in one step."""


class Input(msgspec.Struct):
    """What the worker needs to know beside the text."""

    template_path: str | None


class PolicyFound(msgspec.Struct, tag=True):
    """A valid policy of the text. Of two policies with one name, only the first is sent."""

    document: Raw


class PodFound(msgspec.Struct, tag=True):
    """A pod as its controller would create it."""

    namespace: str | None
    """The namespace in its document."""
    pod: Raw


class TextRead(msgspec.Struct, tag=True):
    """The end of the text."""


class Refused(msgspec.Struct, tag=True):
    """Why there is no answer."""

    detail: str


class Decided(msgspec.Struct):
    """The decision on a pod."""

    class_fields: dict[str, Any]
    """The fields of the pod's spec that the API server sets for its RuntimeClass."""
    rendered: dict[str, Any]
    """What `PodDecision.render` returns."""


Found: TypeAlias = PolicyFound | PodFound | TextRead | Refused

encode = msgspec.json.Encoder().encode
_found_decoder: msgspec.json.Decoder[Found] = msgspec.json.Decoder(Found)
decode_found = _found_decoder.decode
decode_input = msgspec.json.Decoder(Input).decode
decode_decided = msgspec.json.Decoder(Decided).decode


def header(length: int) -> bytes:
    """Return the header of a frame with this many bytes behind it."""
    return length.to_bytes(HEADER_BYTES, "big")
