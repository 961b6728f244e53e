"""The interface of sources of the cluster view: manifests on disk, or an API server."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from webhook.core.cluster.view import Namespace
from webhook.core.policy.errors import ManifestProblem
from webhook.core.policy.snapshot import Snapshot


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

    async def fetch_namespace(self, name: str, timeout: float) -> Namespace | None:  # noqa: ASYNC109
        """Return a namespace that the view does not contain yet.

        Returns None if it does not exist, or if the look-up takes more than `timeout` seconds.
        """
