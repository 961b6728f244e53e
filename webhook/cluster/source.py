"""What serves a view of the cluster: manifests on disk, or an API server."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from webhook.cluster.snapshot import Snapshot
from webhook.core.cluster.view import Namespace
from webhook.core.policy.errors import ManifestProblem


class Check(NamedTuple):
    """One thing that readiness looks at.

    A note is something wrong that does not keep the server from answering well.
    """

    name: str
    ready: bool
    note: str = ""


class Source(Protocol):
    """Keeps a snapshot of the cluster up to date."""

    @property
    def view(self) -> Snapshot:
        """The cluster as it is known now."""

    @property
    def title(self) -> str:
        """Where the view comes from, for people."""

    @property
    def problems(self) -> tuple[ManifestProblem, ...]:
        """What is wrong with policies and manifests now; what they last said stays in force."""

    def checks(self) -> Iterable[Check]:
        """What readiness has to look at."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keep the view up to date while the block runs."""

    async def fetch_namespace(self, name: str, timeout: float) -> Namespace | None:  # noqa: ASYNC109
        """A namespace that the view does not know, if it can be had within `timeout` seconds."""
