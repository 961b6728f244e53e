"""The reader of image pull secrets, which requests a secret when a pod needs it.

The reader needs the RBAC verb `get` on secrets and service accounts. The chart grants it only if
the value `imageConfig.pullSecrets` is set. podsettle neither lists nor watches secrets.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import msgspec

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import Unreachable
from webhook.core.constants import OBJECT_NAME
from webhook.core.pod import DECODE_ERRORS
from webhook.core.pull_secrets import (
    DOCKER_CFG,
    DOCKER_CONFIG_JSON,
    MAX_PULL_SECRETS,
    MAX_PULL_SECRETS_BYTES,
    PullSecret,
)

# The time limit for one object. A review that waits for an image look-up has a shorter limit.
_TIMEOUT_SECONDS = 5.0
# The limit for a service account's list of secrets. Real ones have a few hundred bytes.
_MAX_REFERENCES_BYTES = 64 * 1024


# Only these fields are decoded. To decode all of a Secret with 100,000 keys, which a tenant may
# create, would block the event loop for 40 ms.
class _Data(msgspec.Struct):
    docker_config_json: str = msgspec.field(default="", name=".dockerconfigjson")
    docker_cfg: str = msgspec.field(default="", name=".dockercfg")


class _Secret(msgspec.Struct):
    type: str = ""
    data: _Data | None = None


class _Reference(msgspec.Struct):
    name: str = ""


class _ServiceAccount(msgspec.Struct, rename="camel"):
    image_pull_secrets: msgspec.Raw = msgspec.Raw(b"null")


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
                names = await self._names_of_account(namespace, service_account)
            except _ReadError as error:
                problem = f"service account {service_account!r} {error}"
                return (PullSecret("", problem=problem),)
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

    async def _names_of_account(self, namespace: str, name: str) -> tuple[str, ...]:
        """Return the names of a service account's secrets. Raises _ReadError."""
        content = await self._get("serviceaccounts", namespace, name)
        listed = _decode(content, _ServiceAccount).image_pull_secrets
        if len(bytes(listed)) > _MAX_REFERENCES_BYTES:
            raise _ReadError(f"has more than {_MAX_REFERENCES_BYTES >> 10} KiB of imagePullSecrets")
        return tuple(each.name for each in _decode(listed, list[_Reference] | None) or ())

    async def _read_secret(self, namespace: str, name: str) -> PullSecret:
        """Return a secret, which has a problem if it cannot be read or decoded."""
        try:
            secret = _decode(await self._get("secrets", namespace, name), _Secret)
            data = secret.data or _Data()
            contents = {DOCKER_CONFIG_JSON: data.docker_config_json, DOCKER_CFG: data.docker_cfg}
            content = contents.get(secret.type, "")
            return PullSecret(name, secret.type if content else "", b64decode(content))
        except _ReadError as error:
            return PullSecret(name, problem=str(error))
        except ValueError:  # It is not base64.
            return PullSecret(name, problem="is malformed")

    async def _get(self, kind: str, namespace: str, name: str) -> bytes:
        """Return the JSON of one object. Raises _ReadError."""
        # The API server validates a pod after it calls the webhooks. So the name may contain any
        # characters, and it becomes part of a path.
        if not OBJECT_NAME.fullmatch(name) or not OBJECT_NAME.fullmatch(namespace):
            raise _ReadError("is not a valid name of an object")
        path = f"/api/v1/namespaces/{namespace}/{kind}/{name}"
        try:
            answer = await self._server.fetch("GET", path, timeout=_TIMEOUT_SECONDS)
        except Unreachable:
            raise _ReadError("cannot be read: no answer from the API server") from None
        if answer.status != 200:
            texts = {403: "may not be read by podsettle", 404: "does not exist"}
            text = texts.get(answer.status, f"cannot be read: HTTP status {answer.status}")
            raise _ReadError(text)
        return answer.content


def _decode(content: bytes, as_type: Any) -> Any:
    try:
        return msgspec.json.decode(content, type=as_type)
    except DECODE_ERRORS:
        raise _ReadError("is malformed") from None


class _ReadError(Exception):
    """An object that cannot be read. Its message follows the name of the object in a sentence."""
