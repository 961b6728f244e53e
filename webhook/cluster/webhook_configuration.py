"""The MutatingWebhookConfiguration: read by every replica, kept right by one of them.

The chart writes it once; what follows the policies and the certificates is podsettle's own part of
it, applied on the server's side under a field manager of its own (KEP-555), so that neither Helm
nor GitOps and podsettle ever take each other's fields away. What somebody removes is put back.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from urllib.parse import urlsplit

from webhook.cluster.client import ApiServer, Json
from webhook.cluster.errors import ApiError, Unreachable
from webhook.cluster.reflector import Reflector
from webhook.core.policy.webhook_rules import OPT_IN_WEBHOOK, cluster_webhooks
from webhook.core.policy.webhook_selectors import WebhookSelectors, is_cluster_webhook
from webhook.tasks import supervise

log = logging.getLogger(__name__)

FIELD_MANAGER = "podsettle"
APPLY = "application/apply-patch+yaml"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"

_API_VERSION = "admissionregistration.k8s.io/v1"
_KIND = "MutatingWebhookConfiguration"
_PATH = f"/apis/{_API_VERSION}/mutatingwebhookconfigurations"
_SECONDS_BETWEEN_LOOKS = 1.0
_REPAIRS_AT_ONCE = 3
_LONGEST_REST = 60.0
_STRIFE = "something else undoes podsettle's part again and again; managedFields say who"


@dataclass(frozen=True, slots=True)
class Registered:
    """One webhook of the configuration: whom the API server calls, and which CAs it trusts."""

    name: str
    host: str
    bundle: bytes
    """PEM."""


class Registration:
    """A MutatingWebhookConfiguration, and podsettle's own part in it.

    `scope` and `bundle` give what it is to follow: the webhooks that the policies in force need,
    and the CAs that are to be trusted; None where something else registers those (cert-manager,
    OpenShift, the operator), empty while they are not known. Written only while `may_write` says
    so.
    """

    def __init__(
        self,
        server: ApiServer,
        name: str,
        *,
        scope: Callable[[], WebhookSelectors],
        bundle: Callable[[], bytes | None],
        may_write: Callable[[], bool],
    ) -> None:
        self.name = name
        self.problem = ""
        self.entries: tuple[Registered, ...] = ()
        self._server = server
        self._scope = scope
        self._bundle = bundle
        self._may_write = may_write
        self._due = asyncio.Event()
        self._repairs = _Repairs()
        self._warned = ""
        self._reflector = Reflector(server, _PATH, _webhooks, self._read, name=name)

    @property
    def title(self) -> str:
        """What it is, for people."""
        return f"{_KIND} {self.name}"

    @property
    def synced(self) -> bool:
        """Whether it was looked for once."""
        return self._reflector.synced.is_set()

    @property
    def exists(self) -> bool:
        """Whether there is such a configuration."""
        return self.name in self._reflector.objects

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch it, and keep podsettle's part in it right, while the block runs."""
        async with supervise(self._reflector.run, self._keep):
            yield

    def look(self) -> None:
        """Compare now, because what it follows has changed."""
        self._due.set()

    def _read(self) -> None:
        self.entries = tuple(map(_registered, self._reflector.objects.get(self.name, ())))
        self.look()

    async def _keep(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_SECONDS_BETWEEN_LOOKS):
                    await self._due.wait()
            except TimeoutError:
                pass
            self._due.clear()
            problem = await self._look()
            if problem and problem != self.problem:
                log.error("%s: %s", self.title, problem)
            self.problem = problem
            if problem:
                await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)

    async def _look(self) -> str:
        """Mend what is to be mended; why that did not succeed, where it did not."""
        if not self._may_write() or not self.exists or self._bundle() == b"":
            return ""
        found = {webhook["name"]: webhook for webhook in self._reflector.objects[self.name]}
        if OPT_IN_WEBHOOK not in found:
            return f"has no webhook {OPT_IN_WEBHOOK}, which podsettle's scope is made from"
        try:
            return await self._mend(found)
        except (ApiError, Unreachable) as error:
            return str(error)

    async def _mend(self, found: dict[str, Json]) -> str:
        scope = self._scope()
        self._warn(scope)
        own = _own_part(found[OPT_IN_WEBHOOK], scope, self._bundle())
        stale = {
            name: each
            for name, each in found.items()
            if is_cluster_webhook(name) and name not in own
        }
        if any(not _is_right(found.get(name), webhook) for name, webhook in own.items()):
            body: Json = {
                "apiVersion": _API_VERSION,
                "kind": _KIND,
                "metadata": {"name": self.name},
                # With those that have to go: a pod that one of these was for must not be missed
                # until the webhook that takes its place is there.
                "webhooks": [*own.values(), *stale.values()],
            }
            how = (f"fieldManager={FIELD_MANAGER}&force=true", APPLY)
        elif stale:
            # Not by applying the rest: what injected a caBundle there owns that, and what it owns
            # would stay behind, too little to be a webhook.
            body = {"webhooks": [{"$patch": "delete", "name": name} for name in sorted(stale)]}
            how = (f"fieldManager={FIELD_MANAGER}", STRATEGIC_MERGE)
        else:
            return ""
        if not self._repairs.rest(body):
            await self._patch(*how, body)
        return _STRIFE if self._repairs.in_strife else ""

    def _warn(self, scope: WebhookSelectors) -> None:
        """Log once that the API server asks about more pods than policies select."""
        if scope.merged_because and scope.merged_because != self._warned:
            log.warning(
                "%s: %s: the API server asks about pods that no policy covers, too",
                self.title,
                scope.merged_because,
            )
        self._warned = scope.merged_because

    async def _patch(self, query: str, content_type: str, body: Json) -> None:
        await self._server.request(
            "PATCH", f"{_PATH}/{self.name}?{query}", body, content_type=content_type
        )
        log.info("%s: brought up to date", self.title)


class _Repairs:
    """How often the very same was put right in a row: then something else undoes it each time.

    Two that undo each other as fast as they can would wear out the API server.
    """

    def __init__(self) -> None:
        self._what: Json = {}
        self._times = 0
        self._last = 0.0

    @property
    def in_strife(self) -> bool:
        """Whether somebody should be told."""
        return self._times > _REPAIRS_AT_ONCE

    def rest(self, what: Json) -> bool:
        """Whether to leave it as it is for now; else it counts as done."""
        now = monotonic()
        pause = now - self._last
        if what != self._what or pause > _LONGEST_REST:
            self._what, self._times = what, 0
        elif self.in_strife and pause < min(2.0 ** (self._times - 1), _LONGEST_REST):
            return True
        self._times += 1
        self._last = now
        return False


def _own_part(opt_in: Json, scope: WebhookSelectors, bundle: bytes | None) -> dict[str, Json]:
    """podsettle's own fields, by webhook."""
    own: dict[str, Json] = {}
    trust = {} if bundle is None else {"caBundle": base64.b64encode(bundle).decode()}
    if trust:
        own[OPT_IN_WEBHOOK] = {"name": OPT_IN_WEBHOOK, "clientConfig": trust}
    for webhook in cluster_webhooks(opt_in, scope):
        own[webhook["name"]] = {**webhook, "clientConfig": {**webhook["clientConfig"], **trust}}
    return own


def _is_right(found: Json | None, wanted: Json) -> bool:
    """Whether a webhook is as it should be.

    One that is podsettle's own has to be so to the last field: what the policies no longer say
    must not stay in its scope. It is made from what the API server gave, defaults included.
    """
    if found is None or wanted["name"] != OPT_IN_WEBHOOK:
        return found == wanted
    return bool(found["clientConfig"].get("caBundle") == wanted["clientConfig"]["caBundle"])


def _webhooks(configuration: Json) -> list[Json]:
    webhooks: list[Json] = configuration.get("webhooks") or []
    return webhooks


def _registered(webhook: Json) -> Registered:
    client = webhook["clientConfig"]
    service = client.get("service")
    host = (
        # As the API server names it in the handshake (apiserver `util/webhook/client.go`).
        f"{service['name']}.{service['namespace']}.svc"
        if service
        else urlsplit(client.get("url", "")).hostname or ""
    )
    return Registered(webhook["name"], host, base64.b64decode(client.get("caBundle") or ""))
