"""The SettlePolicy CRD that is installed, and whether it is older than podsettle.

That keeps no replica from being ready. Policies are served as the API server has them, and in a
rolling upgrade of the Deployment before the CRD no new replica would ever get ready.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from webhook.cluster.client import ApiServer
from webhook.cluster.reflector import Reflector
from webhook.cluster.source import Check
from webhook.core.policy.crd import CRD_NAME
from webhook.core.policy.crd_comparison import CrdComparison, CrdDifference
from webhook.core.policy.status import crd_note
from webhook.tasks import supervise

log = logging.getLogger(__name__)

_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class InstalledCrd:
    """A mirror of how the installed CRD differs. `observers` are called after each change."""

    def __init__(self, server: ApiServer) -> None:
        self.observers: list[Callable[[], None]] = []
        self._warned = ""
        self._reflector = Reflector(
            server, _PATH, CrdComparison().difference, self._changed, name=CRD_NAME
        )

    @property
    def known(self) -> bool:
        """Whether it was asked for, with or without success."""
        return self._reflector.synced.is_set() or bool(self._reflector.problem)

    @property
    def difference(self) -> CrdDifference | None:
        """What sets it apart from this release's; None where that is not known."""
        return self._reflector.objects.get(CRD_NAME)

    def check(self) -> Check:
        """A note where it differs; never a reason not to be ready."""
        return Check("crd", True, self._note() or self._reflector.problem)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Mirror it while the block runs."""
        async with supervise(self._reflector.run):
            yield

    def _note(self) -> str:
        return crd_note(self.difference) if self.difference is not None else ""

    def _changed(self) -> None:
        note = self._note()
        if note and note != self._warned:
            log.warning("%s", note)
        self._warned = note
        for observer in self.observers:
            observer()
