"""Which registry is asked for an image, and under which name."""

from __future__ import annotations

from typing import NamedTuple

from webhook.core.images import LookupRules
from webhook.images.errors import LookupFailedError
from webhook.images.reference import DOCKER_HUB, Reference

_HUB_HOST = "registry-1.docker.io"
"""Where Docker Hub's registry really is."""


class Registry(NamedTuple):
    """Where a repository is asked for."""

    host: str
    """`host` or `host:port`, as a URL has it."""
    repository: str
    name: str
    """What credentials are matched to."""
    rules: LookupRules
    """What the operator allows: also an address that is else never asked, if they spell it out."""


def registry_of(reference: Reference, rules: LookupRules) -> Registry:
    """The registry to ask. Raises LookupFailedError where the rules allow none.

    A mirror is asked with the credentials that are for it: the registry's own are not shown to it.
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
    host = _HUB_HOST if reference.host == DOCKER_HUB else reference.host
    return Registry(host, reference.repository, reference.name, rules)
