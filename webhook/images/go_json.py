"""JSON as Go's `encoding/json` reads it, in which the kubelet and the runtimes are written."""

from __future__ import annotations

import re

_NAMES = (
    *("config", "os", "architecture", "Entrypoint", "Cmd"),
    *("auths", "auth", "username", "password"),
    *("token", "access_token"),
)
"""The names that podsettle reads, as their specifications write them."""
_USUAL = {name.lower().encode(): name.encode() for name in _NAMES}
# A quote in a text is escaped, so no name is found there.
_PATTERN = re.compile(rf'(?<=")(?:{"|".join(_NAMES)})(?="\s*:)'.encode(), re.IGNORECASE)
# A hostile document of this size takes 4 ms of the event loop. Real ones have ten kilobytes.
_MAX_SEARCHED_BYTES = 64 * 1024


def with_usual_names(document: bytes) -> bytes:
    """Return a document in which the names that podsettle reads are in their usual case.

    Go takes names in any case. Nix writes those of an image as its author does, such as
    `EntryPoint`, and programs of .NET write `Username` into pull secrets.
    """
    if len(document) > _MAX_SEARCHED_BYTES:
        return document
    return _PATTERN.sub(lambda name: _USUAL[name[0].lower()], document)
