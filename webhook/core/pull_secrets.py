"""Image pull secrets as `webhook.cluster` reads them and `webhook.images` uses them."""

from __future__ import annotations

from typing import NamedTuple, Protocol

DOCKER_CONFIG_JSON = "kubernetes.io/dockerconfigjson"
DOCKER_CFG = "kubernetes.io/dockercfg"

MOST_PULL_SECRETS = 20
"""Of one pod that are read."""
MAX_PULL_SECRETS_BYTES = 1024 * 1024
"""Of all of one pod together, which is as much as one Secret can hold. Real ones have a few
kilobytes; those of several pods are read at the same time."""
LONGEST_NAME = 253
"""Of an object. A pod is seen before the API server has validated it."""


class PullSecret(NamedTuple):
    """One secret that a pod pulls its images with."""

    name: str
    type: str = ""
    content: bytes = b""
    """The value of the type's one key: `.dockerconfigjson` or `.dockercfg`."""
    problem: str = ""
    """Why there is no content: in words that follow the secret's name, where it has one."""

    def __repr__(self) -> str:
        return f"PullSecret({self.name!r}, {self.type!r}, …, {self.problem!r})"


class PullSecrets(Protocol):
    """Reads the secrets that a pod's images are pulled with."""

    async def read(
        self, namespace: str, names: tuple[str, ...], service_account: str
    ) -> tuple[PullSecret, ...]:
        """The secrets of these names; where there are none, those of the service account.

        That is what the API server fills in (kubernetes `plugin/pkg/admission/serviceaccount`).
        Raises nothing: a secret that cannot be had is one with a problem, and so are, as one
        without a name, all that come after the first `MOST_PULL_SECRETS`.
        """
