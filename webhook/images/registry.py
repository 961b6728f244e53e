"""The registry or mirror to send the requests for an image to."""

from __future__ import annotations

from typing import NamedTuple

from webhook.core.image_reference import DOCKER_HUB, Reference
from webhook.core.images import LookupRules
from webhook.images.errors import LookupFailedError

# The host that serves Docker Hub's registry API.
_DOCKER_HUB_API_HOST = "registry-1.docker.io"


class Registry(NamedTuple):
    """A repository, with the registry or mirror that podsettle requests it from."""

    host: str
    """`host` or `host:port`, as in a URL."""
    repository: str
    name: str
    """The name `registry/repository`. The keys of credentials are compared with it."""
    rules: LookupRules
    """The policy's rules. The SSRF check allows a registry that they name by its address."""


def registry_of(reference: Reference, rules: LookupRules) -> Registry:
    """Return the registry or mirror to send requests to.

    Raises LookupFailedError if the rules do not allow the registry.

    A mirror gets only the credentials for the mirror, never those for the original registry.
    """
    mirror = rules.mirror_of(reference.host)
    if mirror is not None:
        host, _, path = mirror.partition("/")
        repository = f"{path}/{reference.repository}" if path else reference.repository
        return Registry(host, repository, f"{host}/{repository}", rules)
    if not rules.allows(reference.host):
        raise LookupFailedError(
            f"registry {reference.host} is not among the policy's imageConfig.registries"
        )
    host = _DOCKER_HUB_API_HOST if reference.host == DOCKER_HUB else reference.host
    return Registry(host, reference.repository, reference.name, rules)
