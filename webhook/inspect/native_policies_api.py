"""Which kinds of native policies an API server has, and in which versions."""

from __future__ import annotations

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError
from webhook.core.export.native_policies import API_GROUP, API_VERSIONS


async def served_versions(server: ApiServer, kind: str) -> tuple[str, ...]:
    """Return the versions in which an API server has a kind, the newest first.

    Raises ApiError and Unreachable.
    """
    versions = []
    for version in API_VERSIONS:
        try:
            answer = await server.request("GET", f"/apis/{API_GROUP}/{version}")
        except ApiError as error:
            if error.status != 404:
                raise
        else:
            if any(each["kind"] == kind for each in answer["resources"]):
                versions.append(version)
    return tuple(versions)
