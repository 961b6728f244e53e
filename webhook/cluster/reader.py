"""Reads of single objects and short lists of the API server. Each is read at most once."""

from __future__ import annotations

from urllib.parse import quote

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, Unreachable
from webhook.cluster.raw_responses import is_kind_of, named_object
from webhook.cluster.reflector import METADATA_ONLY
from webhook.cluster.rights import NotAllowedError, Right
from webhook.core.constants import API_VERSION, GROUP
from webhook.core.types import Json

_API_VERSIONS = {"": "v1", "autoscaling": "autoscaling/v2", GROUP: API_VERSION}
"""The API versions by group, except those that are `GROUP/v1`."""


def path_of(right: Right) -> str:
    """Return the path of the API server that a right is about."""
    api_version = _API_VERSIONS.get(right.group, f"{right.group}/v1")
    parts = ["/apis" if right.group else "/api", api_version]
    if right.namespace is not None:
        parts += ["namespaces", quote(right.namespace, safe="")]
    parts.append(right.resource)
    if right.name is not None:
        parts.append(quote(right.name, safe=""))
    if right.subresource:
        parts.append(right.subresource)
    return "/".join(parts)


async def read_metadata(server: ApiServer, path: str, timeout_seconds: float = 10.0) -> Json:
    """Return an object with nothing but its metadata. Raises ApiError and Unreachable."""
    accept = METADATA_ONLY.format(list="")
    answer = await server.request("GET", path, accept=accept, timeout=timeout_seconds)
    return named_object(_of_kind(answer, path, path.split("/")[-2], server, is_list=False))


def _of_kind(answer: Json, path: str, resource: str, server: ApiServer, *, is_list: bool) -> Json:
    """Return a response if it has the kind of a resource. Raises Unreachable."""
    kind = answer.get("kind")
    if is_kind_of(kind, resource, is_list=is_list):
        return answer
    # Another program, for example behind a redirect. Every answer of an API server has a kind,
    # also a list without items.
    found = "has no kind" if kind is None else f"has the kind {kind!r:.60}"
    raise Unreachable(f"GET {path}: the response {found}; is {server.url} an API server?")


class ClusterReader:
    """A reader with the user's rights that keeps what it has read. Use a new one to read again."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self._read: dict[tuple[Right, str], Json | NotAllowedError | None] = {}

    async def get(self, right: Right, query: str = "") -> Json | None:
        """Return the object or the list that a right is about, or None if it does not exist.

        Raises NotAllowedError, and ApiError and Unreachable for other failures.
        """
        key = (right, query)
        if key not in self._read:
            self._read[key] = await self._request(right, query)
        found = self._read[key]
        if isinstance(found, NotAllowedError):
            raise found
        return found

    async def list(self, right: Right, query: str = "") -> list[Json]:
        """Return the objects of a list. It is empty if the API server has no such resource."""
        items = (await self.get(right, query) or {}).get("items") or []
        return [*map(named_object, items if isinstance(items, list) else [items])]

    async def _request(self, right: Right, query: str) -> Json | NotAllowedError | None:
        path = path_of(right) + (f"?{query}" if query else "")
        try:
            answer = await self.server.request("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            if error.status == 403:
                return NotAllowedError(right)
            raise
        return _of_kind(answer, path, right.resource, self.server, is_list=right.name is None)
