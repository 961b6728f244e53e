"""The interface of sources of the cluster view: manifests on disk, or an API server."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from webhook.cluster.snapshot import Snapshot
from webhook.core.cluster.view import Namespace
from webhook.core.policy.errors import ManifestProblem


class Check(NamedTuple):
    """One readiness check.

    A note describes a problem. Where `ready` is True, the server answers correctly despite it.
    """

    name: str
    ready: bool
    note: str = ""


class Source(Protocol):
    """A source that keeps a view of the cluster up to date."""

    @property
    def view(self) -> Snapshot:
        """The current view of the cluster."""

    @property
    def title(self) -> str:
        """The name of the source in messages: a directory or a URL."""

    @property
    def problems(self) -> tuple[ManifestProblem, ...]:
        """The current problems of policies and manifests; their last valid state is in force."""

    def checks(self) -> Iterable[Check]:
        """Return the readiness checks of this source."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keep the view up to date while the block runs."""

    async def fetch_namespace(self, name: str, timeout: float) -> Namespace | None:  # noqa: ASYNC109
        """Return a namespace that the view lacks; None if it is unknown after `timeout` seconds."""
