"""The interface of sources of the cluster view: manifests on disk, or an API server."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import NamedTuple, Protocol

from webhook.core.policy.snapshot import Snapshot
from webhook.core.policy.validation_errors import ManifestProblem


class Check(NamedTuple):
    """The result of one readiness check.

    `note` describes a problem. If `ready` is True, the server answers correctly despite the
    problem.
    """

    name: str
    ready: bool
    note: str = ""
    logged: bool = False
    """Whether the component that has the problem logs it, and logs its end."""


class NamespaceLookup(StrEnum):
    """The result of a look-up of a namespace: a label of the metric."""

    FOUND = "found"
    """The view contains the namespace."""
    MISSING = "missing"
    """The namespace does not exist."""
    FAILED = "failed"
    """The API server did not answer in time, or with an error."""
    REFUSED = "refused"
    """Look-ups for the same client, or for all clients, were too many."""


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
        """The current problems of policies and manifests. Their last valid state is in force."""

    def checks(self) -> Iterable[Check]:
        """Return the readiness checks of this source."""

    def running(self) -> AbstractAsyncContextManager[None]:
        """Keep the view up to date while the block runs."""

    async def fetch_namespace(self, name: str, client: str, seconds: float) -> NamespaceLookup:
        """Add a namespace to the view if it exists, and if that takes at most `seconds`.

        `client` is the address of the client that caused the look-up.
        """
