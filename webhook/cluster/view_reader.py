"""A view of a cluster that is read once, for commands. The webhook watches instead.

The user of a command may have fewer rights than podsettle. A kind that must not be read is empty in
the view, and `ReadView.unread` says so, because "none found" and "not looked at" are different
answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from webhook.cluster.client import ApiServer, PageLimits
from webhook.cluster.decode import read_namespace, read_node, read_runtime_class
from webhook.cluster.errors import ApiError
from webhook.cluster.policy_object import policy_problems, read_policy
from webhook.cluster.reader import path_of, read_metadata
from webhook.cluster.reflector import FULL_OBJECTS, METADATA_ONLY
from webhook.cluster.rights import Right, Unread
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
    accept: str = FULL_OBJECTS


_RESOURCES: dict[str, _Resource] = {
    "settlepolicies": _Resource(GROUP, read_policy, "only the policies in the input count"),
    "namespaces": _Resource("", read_namespace, "they count as unknown", METADATA_ONLY),
    "runtimeclasses": _Resource("node.k8s.io", read_runtime_class, "each one counts as missing"),
    "nodes": _Resource("", read_node, "remedies with `when: NodesNeedIt` are treated as needed"),
}


def unread_note(unread: Unread) -> str:
    """Return a line for people about a kind of the view, with the effect on decisions."""
    effect = _RESOURCES[unread.resource].effect
    return f"{unread.resource} were not read: {unread.why}; {effect}"


@dataclass(slots=True)
class ReadView:
    """What was read of a cluster."""

    view: Snapshot = field(default_factory=Snapshot)
    unread: tuple[Unread, ...] = ()
    problems: list[ManifestProblem] = field(default_factory=list)
    """The problems of policies and other objects, which are not in the view."""
    created: dict[str, datetime] = field(default_factory=dict)
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
    read = ReadView()
    reading = (_read(server, kind, namespaces, read) for kind in ALL)
    lists = await asyncio.gather(*reading, return_exceptions=True)
    found: dict[Kind, dict[str, Any]] = {}
    for kind, result in zip(ALL, lists, strict=True):
        if isinstance(result, BaseException):
            raise result
        found[kind] = result
    policies = found["settlepolicies"].values()
    read.view = Snapshot(
        policies=PolicySet(each.policy for each in policies if each.policy is not None),
        namespaces=found["namespaces"],
        runtime_classes=found["runtimeclasses"],
        nodes=Nodes(found["nodes"].values()),
        server_version=parse_version(str(version.get("gitVersion", ""))),
        invents_namespaces=False,
    )
    read.unread = tuple(sorted(read.unread, key=lambda each: ALL.index(each.resource)))
    read.problems = [*policy_problems(policies), *read.problems]
    return read


async def _read(
    server: ApiServer, kind: Kind, namespaces: Collection[str], read: ReadView
) -> dict[str, Any]:
    """Return the objects of a kind by name. Note in `read` what may not or cannot be read."""
    resource = _RESOURCES[kind]
    right = Right("list", resource.group, kind)
    accept = resource.accept.format(list="List")
    objects: dict[str, Any] = {}
    try:
        async for page in server.pages(path_of(right), accept, None, PageLimits(continues=True)):
            for item in page.items:
                name = item["metadata"]["name"]
                try:
                    objects[name] = resource.read(item)
                except msgspec.ValidationError as error:
                    read.problems.append(ManifestProblem(f"{kind}/{name}", 0, str(error)))
                if kind == "settlepolicies":
                    # An answer that is not an API server's may lack it.
                    with suppress(LookupError, TypeError, ValueError):
                        created = item["metadata"]["creationTimestamp"]
                        read.created[name] = datetime.fromisoformat(created)
        return objects
    except ApiError as error:
        if error.status == 403:
            if kind == "namespaces":
                read.lists_namespaces = False
                named = await _get_namespaces(server, namespaces)
                if named is not None:
                    return named
            read.unread += (Unread(kind, right),)
        elif error.status == 404 and kind == "settlepolicies":
            read.unread += (Unread(kind, right, NOT_INSTALLED),)
        else:
            raise
        return {}


async def _get_namespaces(server: ApiServer, names: Collection[str]) -> dict[str, Namespace] | None:
    """Return the named namespaces that exist, or None if there are none to read.

    The user may lack the right to read them.
    """
    if not names:
        return None
    namespaces = {}
    for name in filter(OBJECT_NAME.fullmatch, names):
        try:
            document = await read_metadata(server, f"/api/v1/namespaces/{name}")
        except ApiError as error:
            if error.status == 403:
                return None
            if error.status != 404:
                raise
        else:
            namespaces[name] = read_namespace(document)
    return namespaces
