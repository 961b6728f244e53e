"""The cluster that a command looks at: that of the kubeconfig, or one described by manifests."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from webhook.cli.options import PLACEHOLDER_IMAGE, Cluster, InputError, ViewChoice
from webhook.cluster.own_pod import in_cluster
from webhook.cluster.progress import OnProgress
from webhook.core.admission.decider import OperatorSettings
from webhook.kubeconfig.paths import kubeconfig_paths
from webhook.process_memory import imports_excluded_from_gc

if TYPE_CHECKING:
    from webhook.cluster.client import ApiServer
    from webhook.cluster.manifests import Manifests
    from webhook.inspect.cluster_flags import ClusterFlags
    from webhook.inspect.known_cluster import KnownCluster

T = TypeVar("T")

# How long a command waits for a cluster that it can do without.
OPTIONAL_SECONDS = 3.0


class Connection(NamedTuple):
    """A connection to an API server, for the questions of a command."""

    runner: asyncio.Runner
    server: ApiServer
    limit_seconds: float | None
    flags: ClusterFlags

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine that uses `server` to its end. Raise InputError for its errors."""
        with cluster_errors(self.flags):
            return self.runner.run(_within(coroutine, self.limit_seconds))


async def _within(coroutine: Coroutine[Any, Any, T], limit_seconds: float | None) -> T:
    from webhook.cluster.errors import Unreachable

    try:
        async with asyncio.timeout(limit_seconds):
            return await coroutine
    except TimeoutError:
        limit = "time" if limit_seconds is None else f"{limit_seconds:g} s"
        raise Unreachable(f"no answer in {limit}") from None


@contextmanager
def connect(
    cluster: Cluster, limit_seconds: float | None = None, *, advice: str = ""
) -> Iterator[Connection]:
    """Open a connection to the cluster that the options choose. Raises InputError.

    `limit_seconds` is the limit for each question. Without it, only each request has a limit.
    `advice` says what to do if no cluster is configured.
    """
    # The import takes 0.4 s and 60 MiB.
    with imports_excluded_from_gc():
        import_module("webhook.cluster.client")
    with asyncio.Runner() as runner:
        with cluster_errors(cluster.flags, advice):
            server = runner.run(_within(cluster.connect(), limit_seconds))
        try:
            yield Connection(runner, server, limit_seconds, cluster.flags)
        finally:
            runner.run(server.aclose())


@contextmanager
def cluster_errors(flags: ClusterFlags, advice: str = "") -> Iterator[None]:
    """Convert errors of requests in the block to InputError.

    `flags` are those of printed commands. `advice` is added to the message if no cluster is
    configured.
    """
    from webhook.cluster.errors import ApiError, NoClusterError, Unreachable
    from webhook.inspect.cluster_flags import kubectl

    try:
        yield
    except NoClusterError as error:
        raise InputError("; ".join(filter(None, (str(error), advice)))) from None
    except ApiError as error:
        raise InputError(f"the API server answered {error}") from None
    except Unreachable as error:
        check = flags.command(kubectl("version"))
        raise InputError(
            f"the API server does not answer: {error}; to check the kubeconfig: {check}"
        ) from None


class OpenCluster(NamedTuple):
    """A cluster that a command looks at, and the source of its objects."""

    known: KnownCluster
    source: Connection | Manifests

    @property
    def connection(self) -> Connection | None:
        """The connection to the cluster, or None if it is described by manifests."""
        return self.source if isinstance(self.source, Connection) else None

    def check_is_whole(self) -> None:
        """Raise InputError if a file cannot be read to its end: what it lacks is not known."""
        unreadable = () if isinstance(self.source, Connection) else self.source.unreadable
        if unreadable:
            raise InputError("\n".join(map(str, unreadable)))


@contextmanager
def open_cluster(
    choice: ViewChoice,
    *,
    linger_image: str | None = None,
    namespaces: Collection[str] = (),
    limit_seconds: float | None = None,
    on_progress: OnProgress = lambda *_: None,
) -> Iterator[OpenCluster]:
    """Read the cluster that the options choose. With manifests, no cluster is contacted.

    `linger_image` is the value of the flag, which takes precedence over that of the installation.
    An empty one stands for no image. `namespaces` are those that the command needs: the user may be
    allowed to read only them. `limit_seconds` is the limit for reading. Without it, only each
    request has a limit. Raises InputError.
    """
    with imports_excluded_from_gc():
        from webhook.inspect.known_cluster import KnownCluster

    image = PLACEHOLDER_IMAGE if linger_image is None else linger_image or None
    settings = OperatorSettings(linger_image=image)
    if choice.manifests:
        from webhook.cluster.manifest_loader import ManifestsError
        from webhook.cluster.manifests import read_manifests

        try:
            read = read_manifests(choice.manifests, sys.stdin.buffer, on_progress)
        except ManifestsError as error:
            raise InputError(str(error)) from None
        known = KnownCluster(read.view, settings, title=read.title, problems=read.problems)
        yield OpenCluster(known, read)
        return
    advice = "or describe a cluster in files: --manifests PATH"
    with connect(choice.cluster, limit_seconds, advice=advice) as connection:
        from webhook.cluster.reader import ClusterReader
        from webhook.cluster.view_reader import read_view, unread_note
        from webhook.inspect.installation import Installation, find_installation, read_webhook_calls

        server = connection.server
        live = connection.run(read_view(server, namespaces={server.namespace, *namespaces}))
        reader = ClusterReader(server)
        found = connection.run(find_installation(reader))
        notes, why_image_is_assumed = list(map(unread_note, live.unread)), ""
        if isinstance(found, Installation):
            settings = found.settings
            if linger_image is not None:
                settings = replace(settings, linger_image=image, linger_version=None)
        else:
            why_image_is_assumed = found.why if linger_image is None else ""
            if found.rights:
                rights = ", ".join(map(str, found.rights))
                notes.append(f"{found.why}: it needs the right to {rights}")
        known = KnownCluster(
            live.view,
            settings,
            live.unread,
            live.created,
            connection.run(read_webhook_calls(reader)),
            choice.cluster.flags,
            title=server.title,
            namespace=server.namespace,
            problems=tuple(live.problems),
            notes=tuple(f"{server.title}: {note}" for note in notes),
            why_image_is_assumed=why_image_is_assumed,
            lists_namespaces=live.lists_namespaces,
        )
        yield OpenCluster(known, connection)


def read_cluster_if_any(
    choice: ViewChoice, namespaces: Collection[str] = ()
) -> tuple[KnownCluster | None, str]:
    """Read the cluster that the options choose, or kubectl's cluster if it answers soon.

    `namespaces` are those that the command needs. Without options, it is no error if there is no
    cluster: a CI job may have none. The text says why one that is configured was not read.
    """
    chosen = bool(choice.manifests) or choice.cluster.is_chosen
    if not (chosen or in_cluster() or kubeconfig_paths().origin or kubeconfig_paths().files):
        return None, ""
    limit = None if chosen else OPTIONAL_SECONDS
    try:
        with open_cluster(choice, namespaces=namespaces, limit_seconds=limit) as opened:
            return opened.known, ""
    except InputError as error:
        if chosen:
            raise
        return None, str(error)
