"""The view of a cluster that a command looks at: manifests, or the cluster of the kubeconfig."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Collection, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

from webhook.cli.options import (
    PLACEHOLDER_IMAGE,
    Cluster,
    InputError,
    ViewChoice,
    load_manifests,
)
from webhook.cluster.in_cluster import in_cluster
from webhook.cluster.kubeconfig import kubeconfig_paths
from webhook.core.admission.decider import OperatorSettings
from webhook.core.policy.errors import ManifestProblem
from webhook.core.policy.snapshot import Snapshot
from webhook.core.preview.pod_decider import DEFAULT_NAMESPACE
from webhook.core.printable import printable
from webhook.process_memory import imports_excluded_from_gc

if TYPE_CHECKING:
    from webhook.cluster.client import ApiServer
    from webhook.cluster.live_view import Kind, LiveView
    from webhook.inspect.installation import Absent, Installation
    from webhook.inspect.webhook_configurations import WebhookConfigurations

T = TypeVar("T")

# How long a command waits for a cluster that it can do without.
OPTIONAL_SECONDS = 3.0


class Connection:
    """A connection to an API server, for the questions of a command."""

    def __init__(
        self, runner: asyncio.Runner, server: ApiServer, limit_seconds: float | None
    ) -> None:
        self.server = server
        self._runner = runner
        self._limit_seconds = limit_seconds

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine that uses `server` to its end. Raise InputError for its errors."""
        with cluster_errors():
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
    # Imported here, because the import takes 0.4 s and 60 MiB.
    with imports_excluded_from_gc():
        from webhook.cluster.client import ApiServer

    with asyncio.Runner() as runner:
        with cluster_errors(advice):
            server = runner.run(_within(ApiServer.connect(**cluster), limit_seconds))
        try:
            yield Connection(runner, server, limit_seconds)
        finally:
            runner.run(server.aclose())


@dataclass(frozen=True, slots=True)
class OpenView:
    """A view of the cluster, and the settings with which podsettle would decide there."""

    view: Snapshot
    title: str
    """The manifests, or the context and the address of the API server."""
    settings: OperatorSettings
    namespace: str
    """The namespace of objects that name none."""
    problems: tuple[ManifestProblem, ...] = ()
    """The problems of manifests and policies, which are not in the view."""
    notes: list[str] = field(default_factory=list)
    """What the view lacks, and what was assumed. A command prints them on standard error."""
    why_image_is_assumed: str = ""
    """Why the helper's image in `settings` is only a placeholder. Empty if it is none."""
    connection: Connection | None = None
    """None if the view consists of manifests."""
    live: LiveView | None = None
    """What was read of a cluster. None if the view consists of manifests."""
    configurations: WebhookConfigurations | None = None
    """The webhook configurations of a cluster. None if the view consists of manifests."""

    def lists(self, kind: Kind) -> bool:
        """Return whether the view has all objects of a kind. Manifests may omit a kind."""
        if self.live is not None:
            return self.live.has_read(kind)
        if kind == "namespaces":
            return bool(self.view.namespaces)
        if kind == "runtimeclasses":
            return bool(self.view.runtime_classes)
        return True

    @property
    def has_invalid_input(self) -> bool:
        """Whether the manifests have problems. Those of a cluster are not the user's input."""
        return self.live is None and bool(self.problems)


@contextmanager
def cluster_errors(advice: str = "") -> Iterator[None]:
    """Convert errors of requests in the block to InputError.

    `advice` is added to the message if no cluster is configured.
    """
    from webhook.cluster.errors import ApiError, NoClusterError, Unreachable

    try:
        yield
    except NoClusterError as error:
        raise InputError("; ".join(filter(None, (str(error), advice)))) from None
    except ApiError as error:
        raise InputError(f"the API server answered {error}") from None
    except Unreachable as error:
        raise InputError(
            f"the API server does not answer: {error}; to check the kubeconfig: kubectl version"
        ) from None


@contextmanager
def open_view(
    choice: ViewChoice,
    *,
    linger_image: str | None = None,
    namespaces: Collection[str] = (),
    limit_seconds: float | None = None,
) -> Iterator[OpenView]:
    """Open the view that the options choose. With manifests, no cluster is contacted.

    `linger_image` is the value of the flag, which takes precedence over that of the installation.
    An empty one stands for no image. `namespaces` are those that the command needs: the user may be
    allowed to read only them. `limit_seconds` is the limit for reading. Without it, only each
    request has a limit. Raises InputError.
    """
    if choice.manifests:
        source = load_manifests(*choice.manifests)
        image = PLACEHOLDER_IMAGE if linger_image is None else linger_image or None
        settings = OperatorSettings(linger_image=image)
        yield OpenView(source.view, source.title, settings, DEFAULT_NAMESPACE, source.problems)
        return
    advice = "or describe a cluster in files: --manifests PATH"
    with connect(choice.cluster, limit_seconds, advice=advice) as connection:
        from webhook.cluster.live_view import read_view
        from webhook.inspect.installation import find_installation
        from webhook.inspect.webhook_configurations import WebhookConfigurations

        server = connection.server
        wanted = {server.namespace, *namespaces}
        live = connection.run(read_view(server, namespaces=wanted))
        configurations = WebhookConfigurations(server)
        found = connection.run(find_installation(server, configurations=configurations))
        opened = _live(live, connection, found, linger_image)
        yield dataclasses.replace(opened, configurations=configurations)


@contextmanager
def open_view_if_any(choice: ViewChoice, namespaces: Collection[str]) -> Iterator[OpenView | None]:
    """Open the view that the options choose, or that of kubectl's cluster if it answers soon.

    `namespaces` are those that the command needs. Without options, it is no error if there is no
    cluster: a CI job may have none.
    """
    chosen = bool(choice.manifests) or choice.names_cluster
    with ExitStack() as stack:
        opened = None
        if chosen or in_cluster() or kubeconfig_paths().chosen or kubeconfig_paths().exist:
            limit = None if chosen else OPTIONAL_SECONDS
            try:
                opened = stack.enter_context(
                    open_view(choice, namespaces=namespaces, limit_seconds=limit)
                )
            except InputError as error:
                if chosen:
                    raise
                text = f"podsettle: not compared with a cluster: {error}"
                click.echo(printable(text), err=True)
        yield opened


def _live(
    live: LiveView,
    connection: Connection,
    installation: Installation | Absent,
    linger_image: str | None,
) -> OpenView:
    """Return the view of a cluster, with the settings of the installation that it has."""
    from webhook.inspect.installation import Installation

    notes = [f"{live.title}: {unread}" for unread in live.unread]
    why_image_is_assumed = ""
    if isinstance(installation, Installation):
        image = installation.linger_image if linger_image is None else linger_image or None
        settings = OperatorSettings(installation.protected_namespace, image, installation.docs_url)
    else:
        image = PLACEHOLDER_IMAGE if linger_image is None else linger_image or None
        settings = OperatorSettings(linger_image=image)
        if linger_image is None:
            why_image_is_assumed = installation.why
        if installation.rights:
            needs = ", ".join(map(str, installation.rights))
            notes.append(f"{live.title}: {installation.why}: it needs the right to {needs}")
    return OpenView(
        live.view,
        live.title,
        settings,
        connection.server.namespace,
        live.problems,
        notes,
        why_image_is_assumed=why_image_is_assumed,
        connection=connection,
        live=live,
    )
