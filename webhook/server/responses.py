"""Header fields of responses."""

from __future__ import annotations

Header = tuple[bytes, bytes]

CLOSE: Header = (b"connection", b"close")
JSON: Header = (b"content-type", b"application/json")
