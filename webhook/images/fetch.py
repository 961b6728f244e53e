"""Fetches the configuration of an image. Tries each credential until the registry accepts one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from webhook.core.images import ImageConfig, Unavailable
from webhook.images.errors import LookupFailedError, NotAnImageError, RefusedError
from webhook.images.image_manifest import (
    MAX_DOCUMENT_BYTES,
    Descriptor,
    ImageDocument,
    config_descriptor,
    index_entries,
    parse_config,
)
from webhook.images.keyring import Credential
from webhook.images.registry import Registry

if TYPE_CHECKING:
    from webhook.images.client import RepositoryClient

T = TypeVar("T")

# An author of pods chooses the number of credentials, and the registry that refuses them.
MAX_CREDENTIALS = 10


class CredentialTrials:
    """Sends requests to a registry with each credential in order.

    Later requests begin with the credential that the registry accepted.
    """

    def __init__(
        self,
        new_client: Callable[[Registry, Credential | None], RepositoryClient],
        registry: Registry,
        credentials: tuple[Credential, ...],
        timeout_seconds: float,
    ) -> None:
        """If `credentials` is empty, the registry is called once, without authentication.

        Of too many credentials, the first ones are tried.
        """
        self.registry = registry
        self.credentials = credentials[:MAX_CREDENTIALS]
        self._untried = len(credentials) - len(self.credentials)
        self._timeout_seconds = timeout_seconds
        self._clients = [
            new_client(registry, credential) for credential in self.credentials or (None,)
        ]

    async def run(self, operation: Callable[[RepositoryClient], Awaitable[T]]) -> T | Unavailable:
        """Return the operation's result, or Unavailable with the reason for each credential."""
        reasons: dict[str, None] = {}
        try:
            async with asyncio.timeout(self._timeout_seconds):
                for position, client in enumerate(self._clients):
                    try:
                        result = await operation(client)
                    except RefusedError as error:
                        reasons[str(error)] = None
                    else:
                        self._clients = self._clients[position:]
                        return result
            if self._untried:
                reasons[f"{self._untried} further credentials are not tried"] = None
        except LookupFailedError as error:
            reasons[str(error)] = None
        except TimeoutError:
            reasons[f"the registry did not answer within {self._timeout_seconds:.2g} s"] = None
        return Unavailable(", then ".join(reasons))


async def fetch_config(
    client: RepositoryClient, digest: str, architectures: frozenset[str]
) -> ImageConfig:
    """Return the configuration of the image with a digest. Raises LookupFailedError.

    If the digest is that of an index, the images for all `architectures` must have the same
    Entrypoint and Cmd, because the pod may run on a node of any of these architectures.
    """
    manifest = await client.manifest(digest)
    config = config_descriptor(manifest)
    if config is not None:
        return (await _fetch_document(client, config)).config
    entries = index_entries(manifest, architectures)
    found = await _fetch_documents(client, (digest for digest, _ in entries.with_platform))
    others = await _fetch_documents(client, entries.without_platform, skip_others=True)
    found |= {each for each in others if entries.pull_without_platform(each.architecture)}
    distinct = {document.config for document in found}
    if not distinct:
        raise LookupFailedError(entries.no_match)
    if len(distinct) > 1:
        raise LookupFailedError(
            "the image starts different commands on the platforms that the pod could run on"
        )
    return distinct.pop()


async def _fetch_documents(
    client: RepositoryClient, digests: Iterable[str], *, skip_others: bool = False
) -> set[ImageDocument]:
    """Return the configurations of the images in an index. Raises LookupFailedError.

    `skip_others` says whether to leave out what is not an image for Linux.
    """
    # Several manifests may share a configuration.
    configs: dict[tuple[str, int], Descriptor] = {}
    for manifest in await _gather_or_cancel(map(client.manifest, digests)):
        try:
            config = config_descriptor(manifest)
        except NotAnImageError:
            if skip_others:
                continue
            raise
        if config is None:
            raise LookupFailedError("the index contains another index")
        configs[config.digest, config.size] = config

    async def fetch(config: Descriptor) -> ImageDocument | None:
        try:
            return await _fetch_document(client, config)
        except NotAnImageError:
            if skip_others:
                return None
            raise

    documents = await _gather_or_cancel(map(fetch, configs.values()))
    return {document for document in documents if document is not None}


async def _fetch_document(client: RepositoryClient, config: Descriptor) -> ImageDocument:
    """Fetch and parse a configuration. Raises LookupFailedError."""
    if config.size > MAX_DOCUMENT_BYTES:
        raise LookupFailedError(
            f"the image's configuration has {config.size} bytes; the limit is {MAX_DOCUMENT_BYTES}"
        )
    return parse_config(await client.blob(config.digest))


async def _gather_or_cancel(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return all results. The first error cancels the other coroutines and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]
