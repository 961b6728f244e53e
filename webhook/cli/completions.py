"""The values that a shell completes: names in the kubeconfig and in the cluster, and codes.

A completion that fails shows nothing, as in kubectl: a message would stand in the command line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

if TYPE_CHECKING:
    from webhook.cluster.client import ApiServer

_LIMIT_SECONDS = 2.0
"""The limit for the answer of the cluster, because a person waits for the shell."""
_MAX_NAMES = 500


def complete_contexts(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the contexts of the kubeconfig."""
    from webhook.kubeconfig.access import context_names
    from webhook.kubeconfig.paths import kubeconfig_paths

    paths = kubeconfig_paths(context.params.get("kubeconfig"))
    return _starting_with(incomplete, context_names(paths))


def complete_namespaces(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the namespaces of the cluster."""
    return _starting_with(incomplete, _names(context, lambda _: "/api/v1/namespaces"))


def complete_pods(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the pods of the namespace."""
    return _starting_with(incomplete, _object_names(context, "", "pods"))


def complete_targets(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return reason codes, remedies, pods, and kinds such as `job/`. Behind a kind, its objects."""
    from webhook.core.reasons import Reason
    from webhook.core.remedies import REMEDIES
    from webhook.inspect.explain import target

    if "/" in incomplete:
        return _complete_objects(context, incomplete)
    kinds = (target.POD, target.DEPLOYMENT, target.STATEFUL_SET, target.DAEMON_SET, target.JOB,
             target.CRON_JOB)  # fmt: skip
    titles = [str(target.ObjectTarget(kind, "")) for kind in kinds]
    words = _starting_with(incomplete, [*REMEDIES, *Reason, *titles])
    words += complete_pods(context, parameter, incomplete)
    if len(words) == 1 and words[0] in titles:
        # A shell writes a space behind the only word, so that no name could follow the kind.
        return _complete_objects(context, words[0]) or words
    return words


def _complete_objects(context: click.Context, incomplete: str) -> list[str]:
    """Return the objects `KIND/NAME` that begin with a text, which contains a kind."""
    from webhook.inspect.explain.target import ObjectTarget, TargetError, parse_target

    prefix = incomplete.partition("/")[0]
    try:
        found = parse_target(f"{prefix}/any")
    except TargetError:
        return []
    if not isinstance(found, ObjectTarget):  # Without a kind, it would be another target.
        return []
    names = _object_names(context, found.kind.group, found.kind.plural)
    return _starting_with(incomplete, (f"{prefix}/{name}" for name in names))


def _object_names(context: click.Context, group: str, plural: str) -> list[str]:
    """Return the names of the objects of a resource in the namespace."""

    def path(server: ApiServer) -> str:
        namespace = context.params.get("namespace") or server.namespace
        root = f"/apis/{group}/v1" if group else "/api/v1"
        return f"{root}/namespaces/{quote(namespace, safe='')}/{plural}"

    return _names(context, path)


def _starting_with(incomplete: str, names: Iterable[str]) -> list[str]:
    return [str(name) for name in names if name.lower().startswith(incomplete.lower())]


def _names(context: click.Context, path: Callable[[ApiServer], str]) -> list[str]:
    """Return the names of the objects in a list of the cluster. Empty if it cannot be read."""
    from webhook.cluster.errors import ApiError, NoClusterError, Unreachable

    try:
        return asyncio.run(_list_names(context, path))
    except (ApiError, NoClusterError, Unreachable, TimeoutError):
        return []


async def _list_names(context: click.Context, path: Callable[[ApiServer], str]) -> list[str]:
    # Imported here, because the import takes 0.4 s and few commands are completed.
    from webhook.cluster.client import ApiServer
    from webhook.cluster.reflector import METADATA_ONLY
    from webhook.kubeconfig.access import Impersonation

    given = context.params
    async with (
        asyncio.timeout(_LIMIT_SECONDS),
        await ApiServer.connect(
            kubeconfig=given.get("kubeconfig"),
            context=given.get("context"),
            impersonation=Impersonation(given.get("as_user"), tuple(given.get("as_groups") or ())),
        ) as server,
    ):
        accept = METADATA_ONLY.format(list="List")
        page = await server.page(f"{path(server)}?limit={_MAX_NAMES}", accept)
        return [str(item["metadata"]["name"]) for item in page.items]
