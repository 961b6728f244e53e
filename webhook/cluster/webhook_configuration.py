"""The MutatingWebhookConfiguration, which every replica reads and the leader keeps up to date.

The chart creates the object with one webhook. podsettle adds the webhooks that the policies need,
and the caBundles. It uses server-side apply with its own field manager (KEP-555), so podsettle and
Helm or GitOps never remove each other's fields. If another client removes
podsettle's fields, podsettle restores them.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from time import monotonic
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, Unreachable
from webhook.cluster.reflector import Reflector
from webhook.core.policy.cluster_webhooks import OPT_IN_WEBHOOK, cluster_webhooks
from webhook.core.policy.webhook_selectors import WebhookSelectors, is_cluster_webhook
from webhook.core.types import Json
from webhook.tasks import supervise

log = logging.getLogger(__name__)

FIELD_MANAGER = "podsettle"
APPLY = "application/apply-patch+yaml"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"

_API_VERSION = "admissionregistration.k8s.io/v1"
_KIND = "MutatingWebhookConfiguration"
_PATH = f"/apis/{_API_VERSION}/mutatingwebhookconfigurations"
# Some inputs, such as the lease, change without a notification.
_SYNC_INTERVAL_SECONDS = 1.0
# If podsettle sends more identical patches in a row, another client must be reverting them.
_MAX_REPEATED_PATCHES = 3
_MAX_BACKOFF_SECONDS = 60.0
_CONFLICT = "another field manager keeps reverting podsettle's fields; see metadata.managedFields"


class RegisteredWebhook(NamedTuple):
    """The host that the API server calls for a webhook of the configuration, and its CA bundle."""

    host: str
    bundle: bytes
    """CA certificates in PEM."""


class WebhookConfiguration:
    """A MutatingWebhookConfiguration that podsettle partly owns.

    `selectors` returns the selectors of the webhooks that the policies in force need. `bundle`
    returns the CA certificates to register. It returns None if another component registers them
    (cert-manager, OpenShift, the operator), and empty bytes while they are unknown. podsettle
    writes only while `may_write` returns True.
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
        self.name, self.title = name, f"{_KIND} {name}"
        self.problem = ""
        """Why the last update failed. It is empty if the update succeeded."""
        self.webhooks: tuple[RegisteredWebhook, ...] = ()
        self._server = server
        self._selectors = selectors
        self._bundle = bundle
        self._may_write = may_write
        self._sync_requested = asyncio.Event()
        self._patch: Json = {}
        """The last patch. `_repetitions` is how many times in a row it was sent."""
        self._patched_at, self._repetitions = 0.0, 0
        self._logged_merge = ""
        self._reflector = Reflector(server, _PATH, _decode, self._on_change, name=name)

    @property
    def synced(self) -> bool:
        """Whether the configuration has been read, or is known to be missing."""
        return self._reflector.synced.is_set()

    @property
    def exists(self) -> bool:
        """Whether the configuration exists."""
        return self.name in self._reflector.objects

    def running(self) -> AbstractAsyncContextManager[None]:
        """Watch the configuration and keep podsettle's fields up to date while the block runs."""
        return supervise(self._reflector.run, self._reconcile_forever)

    def request_sync(self) -> None:
        """Request an update of the configuration, because one of its inputs has changed."""
        self._sync_requested.set()

    def _on_change(self) -> None:
        found = self._reflector.objects.get(self.name)
        self.webhooks = tuple(map(_registered_webhook, found.webhooks)) if found else ()
        self.request_sync()

    async def _reconcile_forever(self) -> None:
        """Update the configuration after each request and at a regular interval."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_SYNC_INTERVAL_SECONDS):
                    await self._sync_requested.wait()
            self._sync_requested.clear()
            self.problem = await self._sync()
            if self.problem:
                await asyncio.sleep(_SYNC_INTERVAL_SECONDS)

    async def _sync(self) -> str:
        """Patch the configuration if its webhooks are not as desired.

        Return why it failed, or that another client keeps reverting the patches, or an empty text.
        """
        if not self._may_write() or not self.exists or self._bundle() == b"":
            return ""
        uid, webhooks = self._reflector.objects[self.name]
        current = {webhook["name"]: webhook for webhook in webhooks}
        if OPT_IN_WEBHOOK not in current:
            return f"has no webhook {OPT_IN_WEBHOOK}, from which podsettle derives its webhooks"
        selectors = self._selectors()
        if (merged := selectors.merged_because) and merged != self._logged_merge:
            effect = "the API server also sends pods that no policy covers"
            log.warning("%s: %s: %s", self.title, merged, effect)
        self._logged_merge = merged
        desired = _desired_webhooks(current[OPT_IN_WEBHOOK], selectors, self._bundle())
        stale = {
            name: webhook
            for name, webhook in current.items()
            if is_cluster_webhook(name) and name not in desired
        }
        if any(not _is_up_to_date(current.get(name), webhook) for name, webhook in desired.items()):
            body: Json = {
                "apiVersion": _API_VERSION,
                "kind": _KIND,
                # Server-side apply creates a missing object. The uid prevents this: an operator who
                # has just deleted the configuration wants podsettle off. The API server answers 409
                # (apiserver `endpoints/handlers/patch.go`).
                "metadata": {"name": self.name, "uid": uid},
                # Stale webhooks stay until their replacements exist. Otherwise the API server would
                # not call podsettle for pods that are created in between.
                "webhooks": [*desired.values(), *stale.values()],
            }
            query, content_type = (f"fieldManager={FIELD_MANAGER}&force=true", APPLY)
        elif stale:
            # Server-side apply cannot delete a webhook whose caBundle another component has
            # injected. A webhook with only that field would remain, and the API server rejects it.
            body = {"webhooks": [{"$patch": "delete", "name": name} for name in sorted(stale)]}
            query, content_type = (f"fieldManager={FIELD_MANAGER}", STRATEGIC_MERGE)
        else:
            return ""
        if not self._should_wait(body):
            path = f"{_PATH}/{self.name}?{query}"
            try:
                await self._server.request("PATCH", path, body, content_type=content_type)
            except (ApiError, Unreachable) as error:
                return str(error)
            log.info("%s: updated", self.title)
        return _CONFLICT if self._repetitions > _MAX_REPEATED_PATCHES else ""

    def _should_wait(self, body: Json) -> bool:
        """Return whether to skip a patch for now. If the result is False, count the patch.

        Identical patches in a row mean that another client reverts each of them. Without an
        exponential back-off, both clients would overload the API server.
        """
        now = monotonic()
        elapsed = now - self._patched_at
        if body != self._patch or elapsed > _MAX_BACKOFF_SECONDS:
            self._patch, self._repetitions = body, 0
        elif self._repetitions > _MAX_REPEATED_PATCHES and elapsed < 2.0 ** (self._repetitions - 1):
            return True
        self._patched_at, self._repetitions = now, self._repetitions + 1
        return False


def _desired_webhooks(
    opt_in: Json, selectors: WebhookSelectors, bundle: bytes | None
) -> dict[str, Json]:
    """Return the webhooks with the fields that podsettle should own, by name."""
    desired: dict[str, Json] = {}
    ca_bundle = {} if bundle is None else {"caBundle": base64.b64encode(bundle).decode()}
    if ca_bundle:
        desired[OPT_IN_WEBHOOK] = {"name": OPT_IN_WEBHOOK, "clientConfig": ca_bundle}
    for webhook in cluster_webhooks(opt_in, selectors):
        desired[webhook["name"]] = {
            **webhook,
            "clientConfig": {**webhook["clientConfig"], **ca_bundle},
        }
    return desired


def _is_up_to_date(current: Json | None, desired: Json) -> bool:
    """Return whether a webhook needs no update.

    podsettle owns every field of the webhooks that it adds, so these must be equal. A leftover
    field could keep an old selector in force. The desired webhook contains the API server's
    defaults, because it is a copy of the opt-in webhook. Of the opt-in webhook itself, podsettle
    owns only the caBundle.
    """
    if current is None or desired["name"] != OPT_IN_WEBHOOK:
        return current == desired
    return bool(current["clientConfig"].get("caBundle") == desired["clientConfig"]["caBundle"])


class _Configuration(NamedTuple):
    """The fields of a MutatingWebhookConfiguration that podsettle reads."""

    uid: str
    webhooks: list[Json]


def _decode(item: msgspec.Raw) -> _Configuration:
    """Return a configuration for the reflector."""
    configuration = msgspec.json.decode(item)
    return _Configuration(configuration["metadata"]["uid"], configuration.get("webhooks") or [])


def _registered_webhook(webhook: Json) -> RegisteredWebhook:
    """Convert a webhook of the configuration. It names a Service or a URL."""
    client = webhook["clientConfig"]
    service = client.get("service")
    host = (
        # The API server uses this name in the TLS handshake (apiserver `util/webhook/client.go`).
        f"{service['name']}.{service['namespace']}.svc"
        if service
        else urlsplit(client.get("url", "")).hostname or ""
    )
    return RegisteredWebhook(host, base64.b64decode(client.get("caBundle") or ""))
