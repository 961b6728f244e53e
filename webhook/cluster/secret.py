"""A Secret as the place where certificates are stored."""

from __future__ import annotations

import base64
from binascii import Error as Base64Error
from collections.abc import Mapping

from webhook.cluster.client import ApiServer, Json
from webhook.cluster.errors import ApiError, Unreachable
from webhook.tls.dynamic_source import StoreError


class SecretStore:
    """One Secret, read by GET and replaced by PUT: it takes no other rights than these two.

    It is never created: who installs podsettle does, so that it goes away with podsettle.
    """

    def __init__(self, server: ApiServer, namespace: str, name: str) -> None:
        self.title = f"Secret {namespace}/{name}"
        self._server = server
        self._path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
        self._last_read: Json = {}

    async def read(self) -> Mapping[str, bytes] | None:
        """The data; None where there is no such Secret. Raises StoreError."""
        try:
            self._last_read = await self._server.request("GET", self._path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise StoreError(f"{self.title}: {error}") from None
        except Unreachable as error:
            raise StoreError(f"{self.title}: {error}") from None
        return {key: _decoded(value) for key, value in (self._last_read.get("data") or {}).items()}

    async def write(self, contents: Mapping[str, bytes]) -> None:
        """Replace these keys, in the very version that was read. Raises StoreError."""
        data = {key: base64.b64encode(value).decode() for key, value in contents.items()}
        body = {**self._last_read, "data": {**(self._last_read.get("data") or {}), **data}}
        try:
            # With the resourceVersion that was read: after anybody else's write this is a 409, so
            # a replica that has lost its Lease without noticing cannot undo what its heir did.
            self._last_read = await self._server.request("PUT", self._path, body)
        except (ApiError, Unreachable) as error:
            raise StoreError(f"{self.title}: {error}") from None


def _decoded(value: str) -> bytes:
    try:
        return base64.b64decode(value)
    except Base64Error:  # The API server lets none through.
        return b""
