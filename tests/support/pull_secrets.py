"""Pull secrets for tests."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from webhook.core.pull_secrets import DOCKER_CONFIG_JSON, PullSecret


class Secrets:
    """A reader with secrets for all namespaces, or for namespaces by name."""

    def __init__(self, *secrets: PullSecret, **namespaces: tuple[PullSecret, ...]) -> None:
        self.secrets = secrets
        self.namespaces = namespaces
        self.reads: list[tuple[str, tuple[str, ...], str]] = []

    async def read(
        self, namespace: str, names: tuple[str, ...], service_account: str
    ) -> tuple[PullSecret, ...]:
        self.reads.append((namespace, names, service_account))
        return self.namespaces.get(namespace, self.secrets)


def docker_config(auths: Mapping[str, tuple[str, str]], name: str = "pull") -> PullSecret:
    """Return a secret like one of `kubectl create secret docker-registry`."""
    entries = {
        place: {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}
        for place, (user, password) in auths.items()
    }
    return PullSecret(name, DOCKER_CONFIG_JSON, json.dumps({"auths": entries}).encode())
