"""Fetches the configuration of an image, with each credential until the registry accepts one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from webhook.core.images import ImageConfig, Unavailable
from webhook.images.errors import LookupFailedError, RefusedError
from webhook.images.keyring import Credential
from webhook.images.manifest import (
    MAX_DOCUMENT_BYTES,
    config_descriptor,
    parse_config,
    platform_entries,
)
from webhook.images.reference import Registry

if TYPE_CHECKING:
    from webhook.images.client import RegistryClient, RepositoryClient

T = TypeVar("T")


class CredentialRotation:
    """Calls a registry with each credential in order, and remembers the first accepted one."""

    def __init__(
        self,
        client: RegistryClient,
        registry: Registry,
        credentials: tuple[Credential, ...],
        owner: str,
        timeout_seconds: float,
    ) -> None:
        """Without credentials, the registry is called once without authentication."""
        self.registry = registry
        self.credentials = credentials
        self._timeout_seconds = timeout_seconds
        self._clients = [
            client.repository(registry, credential, owner) for credential in credentials or (None,)
        ]

    async def run(self, operation: Callable[[RepositoryClient], Awaitable[T]]) -> T | Unavailable:
        """Return the operation's result, or the reasons why it failed with every credential."""
        reasons: dict[str, None] = {}
        try:
            async with asyncio.timeout(self._timeout_seconds):
                for position, client in enumerate(self._clients):
                    try:
                        found = await operation(client)
                    except RefusedError as error:
                        reasons[str(error)] = None
                    else:
                        self._clients = self._clients[position:]
                        return found
        except LookupFailedError as error:
            reasons[str(error)] = None
        except TimeoutError:
            reasons[f"the registry did not answer within {self._timeout_seconds:.2g} s"] = None
        return Unavailable(", then ".join(reasons))


async def fetch_config(
    client: RepositoryClient, digest: str, architectures: frozenset[str]
) -> ImageConfig:
    """Return the configuration of the image with a digest.

    If the digest is that of an index, the images for all `architectures` must have the same
    Entrypoint and Cmd, because the pod may land on any of them. Raises LookupFailedError.
    """
    manifest = await client.manifest(digest)
    config = config_descriptor(manifest)
    if config is not None:
        return await _fetch_blob(client, config.digest, config.size)
    entries = platform_entries(manifest, architectures)
    configs = set()
    for inner in await _gather(client.manifest(entry.digest) for entry in entries):
        config = config_descriptor(inner)
        if config is None:
            raise LookupFailedError("the index holds another index")
        configs.add((config.digest, config.size))
    found = set(await _gather(_fetch_blob(client, *each) for each in configs))
    if len(found) > 1:
        raise LookupFailedError(
            "the image starts different commands on the platforms that the pod could run on"
        )
    return found.pop()


async def _fetch_blob(client: RepositoryClient, digest: str, size: int) -> ImageConfig:
    if size > MAX_DOCUMENT_BYTES:
        raise LookupFailedError(
            f"the image's configuration has {size} bytes; the limit is {MAX_DOCUMENT_BYTES}"
        )
    return parse_config(await client.blob(digest))


async def _gather(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return all results. The first error cancels the other coroutines and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]
