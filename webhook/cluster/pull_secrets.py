"""The reader of image pull secrets, which requests a secret when a pod needs it.

The reader needs the RBAC verb `get` on secrets and service accounts. The chart grants it only if
the value `imageConfig.pullSecrets` is set. podsettle neither lists nor watches secrets.
"""

from __future__ import annotations

from base64 import b64decode
from typing import TypeVar

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

# The time limit for one object. A review that waits for an image look-up has a shorter limit.
_TIMEOUT_SECONDS = 5.0
_DATA_KEYS = {DOCKER_CONFIG_JSON: ".dockerconfigjson", DOCKER_CFG: ".dockercfg"}

T = TypeVar("T")


class _Secret(msgspec.Struct):
    type: str = ""
    data: dict[str, str] | None = None


class _Reference(msgspec.Struct):
    name: str = ""


class _ServiceAccount(msgspec.Struct, rename="camel"):
    image_pull_secrets: list[_Reference] | None = None


class ClusterPullSecrets:
    """A reader of the pull secrets that a pod uses."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    async def read(
        self, namespace: str, names: tuple[str, ...], service_account: str
    ) -> tuple[PullSecret, ...]:
        """Return the named secrets, or the secrets of the service account if `names` is empty.

        A secret that cannot be read has a `problem` and no content. If the problem belongs to the
        service account, or to all secrets above the limit, the name of the secret is empty.
        """
        if not names:
            try:
                account = await self._get(
                    "serviceaccounts", namespace, service_account, _ServiceAccount
                )
            except _ReadError as error:
                problem = f"service account {service_account!r} {error}"
                return (PullSecret("", problem=problem),)
            names = tuple(each.name for each in account.image_pull_secrets or ())
        unique_names = dict.fromkeys(names[:MAX_PULL_SECRETS])
        secrets: list[PullSecret] = []
        for name in unique_names:
            secret = await self._read_secret(namespace, name)
            if sum(len(item.content) for item in (*secrets, secret)) > MAX_PULL_SECRETS_BYTES:
                limit = f"{MAX_PULL_SECRETS_BYTES >> 20} MiB"
                problem = f"is not read: podsettle reads {limit} of the secrets of a pod"
                secret = PullSecret(name, problem=problem)
            secrets.append(secret)
        if len(names) > MAX_PULL_SECRETS:
            problem = f"pull secrets after the first {MAX_PULL_SECRETS} are not read"
            secrets.append(PullSecret("", problem=problem))
        return tuple(secrets)

    async def _read_secret(self, namespace: str, name: str) -> PullSecret:
        """Return a secret, which has a problem if it cannot be read or decoded."""
        try:
            secret = await self._get("secrets", namespace, name, _Secret)
            key = _DATA_KEYS.get(secret.type)
            content = (secret.data or {}).get(key, "") if key else ""
            return PullSecret(name, secret.type if content else "", b64decode(content))
        except _ReadError as error:
            return PullSecret(name, problem=str(error))
        except ValueError:  # It is not base64.
            return PullSecret(name, problem="is malformed")

    async def _get(self, kind: str, namespace: str, name: str, as_type: type[T]) -> T:
        """Return one object. Raises _ReadError."""
        # The API server validates a pod after it calls the webhooks. So the name may contain any
        # characters, and it becomes part of a path.
        if not OBJECT_NAME.fullmatch(name) or not OBJECT_NAME.fullmatch(namespace):
            raise _ReadError("is not a valid name of an object")
        try:
            path = f"/api/v1/namespaces/{namespace}/{kind}/{name}"
            found = await self._server.request("GET", path, timeout=_TIMEOUT_SECONDS)
            return msgspec.convert(found, as_type)
        except ApiError as error:
            texts = {403: "may not be read by podsettle", 404: "does not exist"}
            text = texts.get(error.status, f"cannot be read: HTTP status {error.status}")
            raise _ReadError(text) from None
        except msgspec.ValidationError:
            raise _ReadError("is malformed") from None
        except Unreachable:
            raise _ReadError("cannot be read: no answer from the API server") from None


class _ReadError(Exception):
    """An object that cannot be read. Its message follows the name of the object in a sentence."""
