"""Image pull secrets, read from the API server one by one when a pod needs them.

It takes `get` on secrets and service accounts, which the chart grants only where look-ups are
wanted (value `imageConfig.pullSecrets`). Nothing is listed and nothing is watched.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import msgspec

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import ApiError, Unreachable
from webhook.core.constants import OBJECT_NAME
from webhook.core.pull_secrets import (
    DOCKER_CFG,
    DOCKER_CONFIG_JSON,
    MAX_PULL_SECRETS,
    MAX_PULL_SECRETS_BYTES,
    PullSecret,
)

_TIMEOUT_SECONDS = 5.0
_DATA_KEYS = {DOCKER_CONFIG_JSON: ".dockerconfigjson", DOCKER_CFG: ".dockercfg"}


class _Secret(msgspec.Struct):
    type: str = ""
    data: dict[str, str] | None = None


class _Reference(msgspec.Struct):
    name: str = ""


class _ServiceAccount(msgspec.Struct, rename="camel"):
    image_pull_secrets: list[_Reference] | None = None


class ClusterPullSecrets:
    """The pull secrets of a cluster's pods."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    async def read(
        self, namespace: str, names: tuple[str, ...], service_account: str
    ) -> tuple[PullSecret, ...]:
        """The secrets of these names; where there are none, those of the service account."""
        if not names:
            try:
                names = await self._names_of_account(namespace, service_account)
            except _ReadError as error:
                why = f"service account {service_account!r} {error}"
                return (PullSecret("", problem=why),)
        read = dict.fromkeys(names[:MAX_PULL_SECRETS])
        found: list[PullSecret] = []
        for name in read:
            secret = await self._read_secret(namespace, name)
            if sum(len(each.content) for each in (*found, secret)) > MAX_PULL_SECRETS_BYTES:
                most = f"{MAX_PULL_SECRETS_BYTES >> 20} MiB"
                why = f"is not read: podsettle reads {most} of the secrets of a pod"
                secret = PullSecret(name, problem=why)
            found.append(secret)
        if len(names) > MAX_PULL_SECRETS:
            why = f"pull secrets after the first {MAX_PULL_SECRETS} are not read"
            found.append(PullSecret("", problem=why))
        return tuple(found)

    async def _names_of_account(self, namespace: str, name: str) -> tuple[str, ...]:
        document = await self._get("serviceaccounts", namespace, name)
        try:
            account = msgspec.convert(document, _ServiceAccount)
        except msgspec.ValidationError:
            raise _ReadError("is not readable") from None
        return tuple(reference.name for reference in account.image_pull_secrets or ())

    async def _read_secret(self, namespace: str, name: str) -> PullSecret:
        try:
            secret = msgspec.convert(await self._get("secrets", namespace, name), _Secret)
            key = _DATA_KEYS.get(secret.type)
            content = (secret.data or {}).get(key, "") if key else ""
            return PullSecret(name, secret.type if content else "", b64decode(content))
        except _ReadError as error:
            return PullSecret(name, problem=str(error))
        except (msgspec.ValidationError, ValueError):
            return PullSecret(name, problem="is not readable")

    async def _get(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        """One object. Raises _ReadError."""
        # A pod is seen before the API server has validated it, and its names become part of a path.
        if not OBJECT_NAME.fullmatch(name) or not OBJECT_NAME.fullmatch(namespace):
            raise _ReadError("has a name that no object can have")
        try:
            return await self._server.request(
                "GET", f"/api/v1/namespaces/{namespace}/{kind}/{name}", timeout=_TIMEOUT_SECONDS
            )
        except ApiError as error:
            said = {403: "may not be read by podsettle", 404: "does not exist"}
            raise _ReadError(said.get(error.status, f"cannot be had: {error.status}")) from None
        except Unreachable:
            raise _ReadError("cannot be had: no answer from the API server") from None


class _ReadError(Exception):
    """An object that cannot be had, in words that follow its name."""
