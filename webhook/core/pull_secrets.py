"""Image pull secrets, which `webhook.cluster` reads and `webhook.images` uses."""

from __future__ import annotations

from typing import NamedTuple, Protocol

DOCKER_CONFIG_JSON = "kubernetes.io/dockerconfigjson"
DOCKER_CFG = "kubernetes.io/dockercfg"

MAX_PULL_SECRETS = 20
"""The number of secrets that are read for one pod. Webhooks run before API validation, so a client
can name any number."""
MAX_PULL_SECRETS_BYTES = 1024 * 1024
"""The size of all secrets of one pod: as much as one Secret can hold. Real ones have a few
kilobytes. The limit matters because the secrets of several pods are read at the same time."""
MAX_OBJECT_NAME_CHARACTERS = 253
"""The length of an object's name. podsettle sees a pod before the API server validates it, so a
name in it may be longer."""


class PullSecret(NamedTuple):
    """One secret that a pod pulls its images with."""

    name: str
    type: str = ""
    content: bytes = b""
    """The value of the key `.dockerconfigjson` or `.dockercfg`, according to the type."""
    problem: str = ""
    """The reason why there is no content, as text that follows the secret's name."""

    def __repr__(self) -> str:
        return f"PullSecret({self.name!r}, {self.type!r}, …, {self.problem!r})"


class PullSecrets(Protocol):
    """A reader of the secrets with which a pod's images are pulled."""

    async def read(
        self, namespace: str, names: tuple[str, ...], service_account: str
    ) -> tuple[PullSecret, ...]:
        """Return the secrets of these names, or those of the service account if there are none.

        The API server fills in the same ones (kubernetes `plugin/pkg/admission/serviceaccount`).

        Raises nothing. A secret that cannot be read has a `problem`. All secrets after the first
        `MAX_PULL_SECRETS` become one entry with a `problem` and without a name.
        """
