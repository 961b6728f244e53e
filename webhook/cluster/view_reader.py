"""A view of a cluster that is read once, for commands. The webhook watches instead.

The user of a command may have fewer rights than podsettle. A kind that must not be read is empty in
the view, and `ReadView.unread` says so, because "none found" and "not looked at" are different
answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from webhook.cluster.client import ApiServer
from webhook.cluster.decode import read_namespace, read_node, read_runtime_class
from webhook.cluster.errors import ApiError
from webhook.cluster.policy_object import policy_problems, read_policy
from webhook.cluster.reader import path_of, read_metadata
from webhook.cluster.reflector import FULL_OBJECTS, METADATA_ONLY
from webhook.cluster.rights import Right
from webhook.cluster.unread import Unread
from webhook.core.cluster.nodes import Nodes
from webhook.core.cluster.view import Namespace
from webhook.core.constants import GROUP, OBJECT_NAME
from webhook.core.defects.versions import parse_version
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.snapshot import Snapshot
from webhook.core.policy.validation_errors import ManifestProblem
from webhook.core.types import Json

Kind: TypeAlias = Literal["settlepolicies", "namespaces", "runtimeclasses", "nodes"]

ALL: tuple[Kind, ...] = ("settlepolicies", "namespaces", "runtimeclasses", "nodes")

NOT_INSTALLED = "podsettle is not installed"


class _Resource(NamedTuple):
    """The API group of a kind, and how its objects are read."""

    group: str
    read: Callable[[Json], Any]
    effect: str
    """What decisions do without the objects."""
    metadata_only: bool = False


_RESOURCES: dict[str, _Resource] = {
    "settlepolicies": _Resource(GROUP, read_policy, "only the policies in the input count"),
    "namespaces": _Resource("", read_namespace, "they count as unknown", metadata_only=True),
    "runtimeclasses": _Resource("node.k8s.io", read_runtime_class, "each one counts as missing"),
    "nodes": _Resource("", read_node, "remedies with `when: NodesNeedIt` are treated as needed"),
}


def unread_note(unread: Unread) -> str:
    """Return a line for people about a kind of the view, with the effect on decisions."""
    effect = _RESOURCES[unread.resource].effect
    return f"{unread.resource} were not read: {unread.why}; {effect}"


@dataclass(frozen=True, slots=True)
class ReadView:
    """What was read of a cluster."""

    view: Snapshot
    unread: tuple[Unread, ...]
    problems: tuple[ManifestProblem, ...]
    """The problems of policies and other objects, which are not in the view."""
    created: Mapping[str, datetime]
    """When each policy was created, by name."""
    lists_namespaces: bool = True
    """Whether the view has all namespaces. Else it has only those that the caller named."""


async def read_view(server: ApiServer, *, namespaces: Collection[str] = ()) -> ReadView:
    """List the objects of all kinds once.

    `namespaces` are those that the caller needs. If namespaces cannot be listed, these are read by
    name. Raises ApiError if the user is not authenticated, and Unreachable.
    """
    # The first request shows whether there is an API server. Without one, all others would wait.
    version = await server.request("GET", "/version")
    reading = _Reading(server, namespaces)
    lists = await asyncio.gather(*map(reading.read, ALL), return_exceptions=True)
    found: dict[Kind, dict[str, Any]] = {}
    for kind, result in zip(ALL, lists, strict=True):
        if isinstance(result, BaseException):
            raise result
        found[kind] = result
    policies = found["settlepolicies"].values()
    return ReadView(
        Snapshot(
            policies=PolicySet(each.policy for each in policies if each.policy is not None),
            namespaces=found["namespaces"],
            runtime_classes=found["runtimeclasses"],
            nodes=Nodes(found["nodes"].values()),
            server_version=parse_version(str(version.get("gitVersion", ""))),
            invents_namespaces=False,
        ),
        tuple(each for kind in ALL for each in reading.unread if each.resource == kind),
        # A list that began again may have found a problem twice.
        tuple(dict.fromkeys((*policy_problems(policies), *reading.problems))),
        reading.created,
        reading.lists_namespaces,
    )


class _Reading:
    """The requests of one view, and what they could not read."""

    def __init__(self, server: ApiServer, namespaces: Collection[str]) -> None:
        self._server = server
        self._namespaces = namespaces
        self.unread: list[Unread] = []
        self.problems: list[ManifestProblem] = []
        self.created: dict[str, datetime] = {}
        self.lists_namespaces = True

    async def read(self, kind: Kind) -> dict[str, Any]:
        """Return the objects of a kind by name. If they may not be read, note that."""
        try:
            try:
                return await self._list_pages(kind)
            except ApiError as error:
                if error.status != 410:
                    raise
                # The list took longer than etcd keeps old versions, so it begins again.
                return await self._list_pages(kind)
        except ApiError as error:
            right = Right("list", _RESOURCES[kind].group, kind)
            if error.status == 403:
                if kind == "namespaces":
                    self.lists_namespaces = False
                    namespaces = await self._get_namespaces()
                    if namespaces is not None:
                        return namespaces
                self.unread.append(Unread(kind, right))
            elif error.status == 404 and kind == "settlepolicies":
                self.unread.append(Unread(kind, right, NOT_INSTALLED))
            else:
                raise
            return {}

    async def _list_pages(self, kind: Kind) -> dict[str, Any]:
        resource = _RESOURCES[kind]
        path = path_of(Right("list", resource.group, kind))
        accept = METADATA_ONLY.format(list="List") if resource.metadata_only else FULL_OBJECTS
        objects: dict[str, Any] = {}
        async for page in self._server.pages(path, accept):
            for item in page.items:
                name = item["metadata"]["name"]
                try:
                    objects[name] = resource.read(item)
                except msgspec.ValidationError as error:
                    self.problems.append(ManifestProblem(f"{kind}/{name}", 0, str(error)))
                if kind == "settlepolicies":
                    # An answer that is not an API server's may lack it.
                    with suppress(LookupError, TypeError, ValueError):
                        created = item["metadata"]["creationTimestamp"]
                        self.created[name] = datetime.fromisoformat(created)
        return objects

    async def _get_namespaces(self) -> dict[str, Namespace] | None:
        """Return the named namespaces that exist, or None if there are none to read.

        The user may lack the right to read them.
        """
        if not self._namespaces:
            return None
        namespaces = {}
        for name in filter(OBJECT_NAME.fullmatch, self._namespaces):
            try:
                path = f"/api/v1/namespaces/{name}"
                document = await read_metadata(self._server, path)
            except ApiError as error:
                if error.status == 403:
                    return None
                if error.status != 404:
                    raise
            else:
                namespaces[name] = read_namespace(document)
        return namespaces
