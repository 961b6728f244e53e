"""The MutatingWebhookConfiguration: read by every replica, kept right by one of them.

The chart writes it once; what follows the policies and the certificates is podsettle's own part of
it, applied on the server's side under a field manager of its own (KEP-555), so that neither Helm
nor GitOps and podsettle ever take each other's fields away. What somebody removes is put back.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from webhook.background import background
from webhook.cluster.api import ApiError, ApiServer, Json, Unreachable
from webhook.cluster.reflector import Reflector
from webhook.core.policy import SettlePolicy
from webhook.core.scope import BY_SELECTOR, OPT_IN, by_selector

log = logging.getLogger(__name__)

FIELD_MANAGER = "podsettle"
APPLY = "application/apply-patch+yaml"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"

_API_VERSION = "admissionregistration.k8s.io/v1"
_KIND = "MutatingWebhookConfiguration"
_PATH = f"/apis/{_API_VERSION}/mutatingwebhookconfigurations"
_SECONDS_BETWEEN_LOOKS = 1.0


@dataclass(frozen=True, slots=True)
class Registered:
    """One webhook of the configuration: whom the API server calls, and which CAs it trusts."""

    name: str
    host: str
    bundle: bytes
    """PEM."""


class Registration:
    """A MutatingWebhookConfiguration, and podsettle's own part in it.

    `policies` and `bundle` give what it is to follow: the policies in force, and the CAs that are
    to be trusted; None where somebody else registers those (cert-manager, OpenShift, the operator),
    empty while they are not known. Written only while `may_write` says so.
    """

    def __init__(
        self,
        server: ApiServer,
        name: str,
        *,
        policies: Callable[[], Iterable[SettlePolicy]],
        bundle: Callable[[], bytes | None],
        may_write: Callable[[], bool],
    ) -> None:
        self.name = name
        self.problem = ""
        self.entries: tuple[Registered, ...] = ()
        self._server = server
        self._policies = policies
        self._bundle = bundle
        self._may_write = may_write
        self._due = asyncio.Event()
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
        async with background(self._reflector.run, self._keep):
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
        if OPT_IN not in found:
            return f"has no webhook {OPT_IN}, which podsettle's scope is made from"
        try:
            await self._mend(found)
        except (ApiError, Unreachable) as error:
            return str(error)
        return ""

    async def _mend(self, found: dict[str, Json]) -> None:
        own = _own_part(found[OPT_IN], self._policies(), self._bundle())
        if BY_SELECTOR in found and BY_SELECTOR not in own:
            # Not by applying the rest: what injected a caBundle there owns that, and what it owns
            # would stay behind, too little to be a webhook.
            body: Json = {"webhooks": [{"$patch": "delete", "name": BY_SELECTOR}]}
            await self._patch(f"fieldManager={FIELD_MANAGER}", body, STRATEGIC_MERGE)
        elif any(not _holds(found.get(name), webhook) for name, webhook in own.items()):
            body = {
                "apiVersion": _API_VERSION,
                "kind": _KIND,
                "metadata": {"name": self.name},
                "webhooks": list(own.values()),
            }
            await self._patch(f"fieldManager={FIELD_MANAGER}&force=true", body, APPLY)

    async def _patch(self, query: str, body: Json, content_type: str) -> None:
        await self._server.request(
            "PATCH", f"{_PATH}/{self.name}?{query}", body, content_type=content_type
        )
        log.info("%s: brought up to date", self.title)


def _own_part(
    opt_in: Json, policies: Iterable[SettlePolicy], bundle: bytes | None
) -> dict[str, Json]:
    """podsettle's own fields, by webhook."""
    own: dict[str, Json] = {}
    trust = {} if bundle is None else {"caBundle": base64.b64encode(bundle).decode()}
    if trust:
        own[OPT_IN] = {"name": OPT_IN, "clientConfig": trust}
    other = by_selector(opt_in, policies)
    if other is not None:
        own[BY_SELECTOR] = {**other, "clientConfig": {**other["clientConfig"], **trust}}
    return own


def _holds(found: Any, wanted: Any) -> bool:
    """Whether an object says all that is wanted of it; the API server adds its defaults."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            _holds(found.get(key), value) for key, value in wanted.items()
        )
    return bool(found == wanted)


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
