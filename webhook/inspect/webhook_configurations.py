"""The MutatingWebhookConfigurations of a cluster, for commands that need them several times."""

from __future__ import annotations

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError
from webhook.cluster.rights import Right
from webhook.core.types import Json

CONFIGURATION_GROUP = "admissionregistration.k8s.io"
CONFIGURATIONS_RESOURCE = "mutatingwebhookconfigurations"
CONFIGURATIONS = f"/apis/{CONFIGURATION_GROUP}/v1/{CONFIGURATIONS_RESOURCE}"
"""The path of the list."""
CONFIGURATIONS_RIGHT = Right("list", CONFIGURATION_GROUP, CONFIGURATIONS_RESOURCE)


class WebhookConfigurations:
    """The webhook configurations of a cluster, which are listed at most once."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._is_listed = False
        self._items: list[Json] | None = None

    async def all(self) -> list[Json] | None:
        """Return all configurations, or None if the user may not list them.

        Raises Unreachable, and ApiError for an unexpected response.
        """
        if not self._is_listed:
            self._items = await self._request()
            self._is_listed = True
        return self._items

    async def _request(self) -> list[Json] | None:
        try:
            answer = await self._server.request("GET", CONFIGURATIONS)
        except ApiError as error:
            if error.status != 403:
                raise
            return None
        return answer.get("items") or []
