"""Storage of certificates in a Secret."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, Unreachable
from webhook.core.types import Json
from webhook.tls.dynamic_source import StoreError


class SecretStore:
    """A store in an existing Secret. It needs only the RBAC verbs `get` and `update`.

    The installation creates the Secret, so an uninstallation deletes it. podsettle never creates
    it.
    """

    def __init__(self, server: ApiServer, namespace: str, name: str) -> None:
        self.title = f"Secret {namespace}/{name}"
        self._server = server
        self._path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
        self._last_read: Json = {}

    async def read(self) -> Mapping[str, bytes] | None:
        """Return the Secret's data, or None if the Secret does not exist.

        Raises StoreError.
        """
        try:
            self._last_read = await self._server.request("GET", self._path)
            data = self._last_read.get("data") or {}
            return {key: base64.b64decode(value) for key, value in data.items()}
        except (ApiError, Unreachable, ValueError) as error:
            if isinstance(error, ApiError) and error.status == 404:
                return None
            raise StoreError(f"{self.title}: {error}") from None

    async def write(self, contents: Mapping[str, bytes]) -> None:
        """Write these keys to the version of the Secret that was read last. Keep its other keys.

        Raises StoreError if the request fails, or if the Secret has changed since the last read.
        """
        data = {key: base64.b64encode(value).decode() for key, value in contents.items()}
        body = {**self._last_read, "data": {**(self._last_read.get("data") or {}), **data}}
        try:
            # The body holds the resourceVersion that was read, so the API server answers 409 after
            # another client's write. A replica that has lost the Lease without noticing therefore
            # cannot overwrite the new leader's certificates.
            self._last_read = await self._server.request("PUT", self._path, body)
        except (ApiError, Unreachable) as error:
            raise StoreError(f"{self.title}: {error}") from None
