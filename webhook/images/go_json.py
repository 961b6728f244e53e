"""JSON objects as Go's `encoding/json` reads them, for the kubelet and the container runtimes."""

from __future__ import annotations

from typing import TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)

_NULL = msgspec.Raw(b"null")
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw] | None).decode


def decode_object(document: bytes | msgspec.Raw, kind: type[T]) -> T:
    """Decode an object. Names may have any case, and null stands for an absent member.

    Raises what msgspec raises.
    """
    members = {name.lower(): raw for name, raw in (_decode_members(document) or {}).items()}
    found = {name: members.get(name, _NULL) for name in kind.__struct_fields__}
    present = {name: raw for name, raw in found.items() if raw != _NULL}
    return msgspec.json.decode(msgspec.json.encode(present), type=kind)
