"""The installed SettlePolicy CRD, compared with the CRD of this release.

A replica is ready even if the installed CRD is older. Otherwise, an operator who upgrades the
Deployment before the CRD would wait forever, because no new replica would become ready.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import msgspec

from webhook.cluster.client import ApiServer
from webhook.cluster.reflector import Reflector
from webhook.cluster.source import Check
from webhook.core.policy.crd import CRD_NAME
from webhook.core.policy.crd_comparison import CrdDifference, crd_difference
from webhook.core.policy.status_conditions import crd_note
from webhook.tasks import supervise

_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class InstalledCrd:
    """A watch on the installed CRD, which compares it with the CRD of this release.

    `observers` are called after each change of the installed CRD.
    """

    def __init__(self, server: ApiServer) -> None:
        self.observers: list[Callable[[], None]] = []
        self._note = ""
        self._reflector = Reflector(
            server,
            _PATH,
            lambda item: crd_difference(msgspec.json.decode(item)),
            self._on_change,
            name=CRD_NAME,
        )

    @property
    def attempted(self) -> bool:
        """Whether a request for the CRD has succeeded or failed."""
        return self._reflector.synced.is_set() or bool(self._reflector.problem)

    @property
    def difference(self) -> CrdDifference | None:
        """The difference from this release's CRD. It is None while the installed CRD is unknown."""
        return self._reflector.objects.get(CRD_NAME)

    def check(self) -> Check:
        """Return a check that always passes, with a note if the CRD differs."""
        unread = self._reflector.problem
        return Check("crd", True, self._note or unread, logged=bool(unread and not self._note))

    def running(self) -> AbstractAsyncContextManager[None]:
        """Watch the CRD while the block runs."""
        return supervise(self._reflector.run)

    def _on_change(self) -> None:
        self._note = crd_note(self.difference) if self.difference is not None else ""
        for observer in self.observers:
            observer()
