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
_SYNC_INTERVAL_SECONDS = 1.0
_MAX_REPEATED_PATCHES = 3
_MAX_BACKOFF_SECONDS = 60.0
_CONFLICT = "something else undoes podsettle's part again and again; managedFields say who"


@dataclass(frozen=True, slots=True)
class RegisteredWebhook:
    """One webhook of the configuration: whom the API server calls, and which CAs it trusts."""

    name: str
    host: str
    bundle: bytes
    """PEM."""


class WebhookConfiguration:
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
        selectors: Callable[[], WebhookSelectors],
        bundle: Callable[[], bytes | None],
        may_write: Callable[[], bool],
    ) -> None:
        self.name = name
        self.problem = ""
        self.entries: tuple[RegisteredWebhook, ...] = ()
        self._server = server
        self._selectors = selectors
        self._bundle = bundle
        self._may_write = may_write
        self._sync_requested = asyncio.Event()
        self._backoff = _ConflictBackoff()
        self._warned = ""
        self._reflector = Reflector(server, _PATH, _webhooks_of, self._on_change, name=name)

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
        async with supervise(self._reflector.run, self._reconcile_forever):
            yield

    def request_sync(self) -> None:
        """Compare now, because what it follows has changed."""
        self._sync_requested.set()

    def _on_change(self) -> None:
        self.entries = tuple(map(_registered_webhook, self._reflector.objects.get(self.name, ())))
        self.request_sync()

    async def _reconcile_forever(self) -> None:
        while True:
            try:
                async with asyncio.timeout(_SYNC_INTERVAL_SECONDS):
                    await self._sync_requested.wait()
            except TimeoutError:
                pass
            self._sync_requested.clear()
            problem = await self._sync()
            if problem and problem != self.problem:
                log.error("%s: %s", self.title, problem)
            self.problem = problem
            if problem:
                await asyncio.sleep(_SYNC_INTERVAL_SECONDS)

    async def _sync(self) -> str:
        """Mend what is to be mended; why that did not succeed, where it did not."""
        if not self._may_write() or not self.exists or self._bundle() == b"":
            return ""
        found = {webhook["name"]: webhook for webhook in self._reflector.objects[self.name]}
        if OPT_IN_WEBHOOK not in found:
            return f"has no webhook {OPT_IN_WEBHOOK}, which podsettle's scope is made from"
        try:
            return await self._reconcile(found)
        except (ApiError, Unreachable) as error:
            return str(error)

    async def _reconcile(self, found: dict[str, Json]) -> str:
        selectors = self._selectors()
        self._warn(selectors)
        own = _desired(found[OPT_IN_WEBHOOK], selectors, self._bundle())
        stale = {
            name: each
            for name, each in found.items()
            if is_cluster_webhook(name) and name not in own
        }
        if any(not _is_up_to_date(found.get(name), webhook) for name, webhook in own.items()):
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
        if not self._backoff.should_wait(body):
            await self._patch(*how, body)
        return _CONFLICT if self._backoff.conflicting else ""

    def _warn(self, selectors: WebhookSelectors) -> None:
        """Log once that the API server asks about more pods than policies select."""
        if selectors.merged_because and selectors.merged_because != self._warned:
            log.warning(
                "%s: %s: the API server asks about pods that no policy covers, too",
                self.title,
                selectors.merged_because,
            )
        self._warned = selectors.merged_because

    async def _patch(self, query: str, content_type: str, body: Json) -> None:
        await self._server.request(
            "PATCH", f"{_PATH}/{self.name}?{query}", body, content_type=content_type
        )
        log.info("%s: brought up to date", self.title)


class _ConflictBackoff:
    """How often the very same was put right in a row: then something else undoes it each time.

    Two that undo each other as fast as they can would wear out the API server.
    """

    def __init__(self) -> None:
        self._body: Json = {}
        self._repetitions = 0
        self._patched_at = 0.0

    @property
    def conflicting(self) -> bool:
        """Whether somebody should be told."""
        return self._repetitions > _MAX_REPEATED_PATCHES

    def should_wait(self, body: Json) -> bool:
        """Whether to leave it as it is for now; else it counts as done."""
        now = monotonic()
        pause = now - self._patched_at
        if body != self._body or pause > _MAX_BACKOFF_SECONDS:
            self._body, self._repetitions = body, 0
        elif self.conflicting and pause < min(2.0 ** (self._repetitions - 1), _MAX_BACKOFF_SECONDS):
            return True
        self._repetitions += 1
        self._patched_at = now
        return False


def _desired(opt_in: Json, selectors: WebhookSelectors, bundle: bytes | None) -> dict[str, Json]:
    """podsettle's own fields, by webhook."""
    own: dict[str, Json] = {}
    trust = {} if bundle is None else {"caBundle": base64.b64encode(bundle).decode()}
    if trust:
        own[OPT_IN_WEBHOOK] = {"name": OPT_IN_WEBHOOK, "clientConfig": trust}
    for webhook in cluster_webhooks(opt_in, selectors):
        own[webhook["name"]] = {**webhook, "clientConfig": {**webhook["clientConfig"], **trust}}
    return own


def _is_up_to_date(found: Json | None, wanted: Json) -> bool:
    """Whether a webhook is as it should be.

    One that is podsettle's own has to be so to the last field: what the policies no longer say
    must not stay in its scope. It is made from what the API server gave, defaults included.
    """
    if found is None or wanted["name"] != OPT_IN_WEBHOOK:
        return found == wanted
    return bool(found["clientConfig"].get("caBundle") == wanted["clientConfig"]["caBundle"])


def _webhooks_of(configuration: Json) -> list[Json]:
    webhooks: list[Json] = configuration.get("webhooks") or []
    return webhooks


def _registered_webhook(webhook: Json) -> RegisteredWebhook:
    client = webhook["clientConfig"]
    service = client.get("service")
    host = (
        # As the API server names it in the handshake (apiserver `util/webhook/client.go`).
        f"{service['name']}.{service['namespace']}.svc"
        if service
        else urlsplit(client.get("url", "")).hostname or ""
    )
    return RegisteredWebhook(webhook["name"], host, base64.b64decode(client.get("caBundle") or ""))
