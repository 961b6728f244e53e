"""Image pull secrets, which `webhook.cluster` reads and `webhook.images` uses."""

from __future__ import annotations

from typing import NamedTuple, Protocol

DOCKER_CONFIG_JSON = "kubernetes.io/dockerconfigjson"
DOCKER_CFG = "kubernetes.io/dockercfg"

MAX_PULL_SECRETS = 20
"""The maximum number of secrets that are read for one pod. Webhooks run before API validation, so a
client can name any number of secrets."""
MAX_PULL_SECRETS_BYTES = 1024 * 1024
"""The maximum size of all secrets of one pod together. One Secret can have the same size. Real
pull secrets have a few kilobytes. The limit bounds the memory, because the secrets of several pods
are read at the same time."""
MAX_OBJECT_NAME_CHARACTERS = 253
"""The maximum length of an object's name. podsettle sees a pod before the API server validates it,
so a name in it may be longer."""


class PullSecret(NamedTuple):
    """One secret with which a pod's images are pulled."""

    name: str
    type: str = ""
    content: bytes = b""
    """The value of the key `.dockerconfigjson` or `.dockercfg`, according to the type."""
    problem: str = ""
    """The reason why `content` is empty, as a text that continues a sentence after the name."""

    def __repr__(self) -> str:
        return f"PullSecret({self.name!r}, {self.type!r}, …, {self.problem!r})"


class PullSecrets(Protocol):
    """A reader of the secrets with which a pod's images are pulled."""

    async def read(
        self, namespace: str, names: tuple[str, ...], service_account: str
    ) -> tuple[PullSecret, ...]:
        """Return the secrets with these names.

        If `names` is empty, return the pull secrets of the service account. The API server adds the
        same secrets to the pod (kubernetes `plugin/pkg/admission/serviceaccount`).

        Raises nothing. A secret that cannot be read has a `problem`. All secrets after the first
        `MAX_PULL_SECRETS` become one entry with a `problem` and without a name.
        """
