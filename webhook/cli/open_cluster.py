"""The cluster that a command looks at: that of the kubeconfig, or one described by manifests."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from webhook.cli.echo import echo_message
from webhook.cli.options import (
    PLACEHOLDER_IMAGE,
    Cluster,
    InputError,
    ViewChoice,
    read_all_manifests,
)
from webhook.cluster.own_pod import in_cluster
from webhook.cluster.progress import OnProgress, ignore_progress
from webhook.core.admission.decider import OperatorSettings
from webhook.kubeconfig.paths import kubeconfig_paths
from webhook.process_memory import imports_excluded_from_gc

if TYPE_CHECKING:
    from webhook.cluster.client import ApiServer
    from webhook.cluster.manifests import Manifests
    from webhook.inspect.cluster_flags import ClusterFlags
    from webhook.inspect.installation import Absent, Installation
    from webhook.inspect.known_cluster import KnownCluster

T = TypeVar("T")

# How long a command waits for a cluster that it can do without.
OPTIONAL_SECONDS = 3.0


class Connection:
    """A connection to an API server, for the questions of a command."""

    def __init__(
        self,
        runner: asyncio.Runner,
        server: ApiServer,
        limit_seconds: float | None,
        flags: ClusterFlags,
    ) -> None:
        self.server = server
        self._flags = flags
        self._runner = runner
        self._limit_seconds = limit_seconds

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine that uses `server` to its end. Raise InputError for its errors."""
        with cluster_errors(self._flags):
            return self._runner.run(_within(coroutine, self._limit_seconds))


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


@contextmanager
def open_cluster(
    choice: ViewChoice,
    *,
    linger_image: str | None = None,
    namespaces: Collection[str] = (),
    limit_seconds: float | None = None,
    on_progress: OnProgress = ignore_progress,
) -> Iterator[OpenCluster]:
    """Read the cluster that the options choose. With manifests, no cluster is contacted.

    `linger_image` is the value of the flag, which takes precedence over that of the installation.
    An empty one stands for no image. `namespaces` are those that the command needs: the user may be
    allowed to read only them. `limit_seconds` is the limit for reading. Without it, only each
    request has a limit. Raises InputError.
    """
    with imports_excluded_from_gc():
        from webhook.inspect.known_cluster import KnownCluster

    if choice.manifests:
        read = read_all_manifests(choice.manifests, on_progress)
        image = PLACEHOLDER_IMAGE if linger_image is None else linger_image or None
        settings = OperatorSettings(linger_image=image)
        known = KnownCluster(read.view, settings, title=read.title, problems=read.problems)
        yield OpenCluster(known, read)
        return
    advice = "or describe a cluster in files: --manifests PATH"
    with connect(choice.cluster, limit_seconds, advice=advice) as connection:
        from webhook.cluster.reader import ClusterReader
        from webhook.cluster.view_reader import read_view, unread_note
        from webhook.inspect.installation import find_installation
        from webhook.inspect.webhook_calls import read_webhook_calls

        server = connection.server
        wanted = {server.namespace, *namespaces}
        live = connection.run(read_view(server, namespaces=wanted))
        reader = ClusterReader(server)
        found = connection.run(find_installation(reader))
        settings, why_image_is_assumed, note = _settings(found, linger_image)
        notes = [*map(unread_note, live.unread), *([note] if note else [])]
        known = KnownCluster(
            live.view,
            settings,
            live.unread,
            live.created,
            connection.run(read_webhook_calls(reader)),
            choice.cluster.flags,
            title=server.title,
            namespace=server.namespace,
            problems=live.problems,
            notes=tuple(f"{server.title}: {each}" for each in notes),
            why_image_is_assumed=why_image_is_assumed,
            lists_namespaces=live.lists_namespaces,
        )
        yield OpenCluster(known, connection)


@contextmanager
def open_cluster_if_any(
    choice: ViewChoice, namespaces: Collection[str]
) -> Iterator[KnownCluster | None]:
    """Read the cluster that the options choose, or kubectl's cluster if it answers soon.

    `namespaces` are those that the command needs. Without options, it is no error if there is no
    cluster: a CI job may have none.
    """
    chosen = bool(choice.manifests) or choice.names_cluster
    with ExitStack() as stack:
        known = None
        if chosen or in_cluster() or kubeconfig_paths().origin or kubeconfig_paths().files:
            limit = None if chosen else OPTIONAL_SECONDS
            try:
                opened = open_cluster(choice, namespaces=namespaces, limit_seconds=limit)
                known = stack.enter_context(opened).known
            except InputError as error:
                if chosen:
                    raise
                echo_message(f"not compared with a cluster: {error}")
        yield known


def _settings(
    installation: Installation | Absent, linger_image: str | None
) -> tuple[OperatorSettings, str, str]:
    """Return the settings of an installation, why its image is assumed, and a note.

    The texts are empty if the image is not assumed, and if no right is missing.
    """
    from webhook.inspect.installation import Installation

    if isinstance(installation, Installation):
        image, version = installation.linger_image, installation.linger_version
        if linger_image is not None:
            image, version = linger_image or None, None
        namespace, docs_url = installation.protected_namespace, installation.docs_url
        return OperatorSettings(namespace, image, docs_url, version), "", ""
    image = PLACEHOLDER_IMAGE if linger_image is None else linger_image or None
    rights = ", ".join(map(str, installation.rights))
    return (
        OperatorSettings(linger_image=image),
        installation.why if linger_image is None else "",
        f"{installation.why}: it needs the right to {rights}" if rights else "",
    )
