"""The digest of the base image, which the first step of a release writes into the Dockerfile."""

from __future__ import annotations

import asyncio
import re
import ssl
from contextlib import aclosing
from pathlib import Path

from release.source import ReleaseError
from webhook.core.image_reference import parse_reference
from webhook.core.images import LookupRules
from webhook.images.client import RepositoryClient
from webhook.images.errors import LookupFailedError
from webhook.images.http_session import HttpSession
from webhook.images.registry import registry_of

_TIMEOUT_SECONDS = 30


def pin_base(dockerfile: Path, context: ssl.SSLContext | None = None) -> str:
    """Write the digest that the base image's tag has now. Return the name with the digest.

    A name that has a digest already stays as it is. Raises ReleaseError if the registry has no
    answer.
    """
    text = dockerfile.read_text(encoding="utf-8")
    found = re.search(r"(?<=^ARG PYTHON=)\S+$", text, re.MULTILINE)
    if found is None:
        raise ReleaseError("release: the Dockerfile has no line ARG PYTHON=…")
    name = found[0]
    if "@" in name:
        return name
    try:
        digest = asyncio.run(_digest_of(name, context or ssl.create_default_context()))
    except LookupFailedError as error:
        raise ReleaseError(f"release: base image {name}: {error}") from error
    pinned = f"{name}@{digest}"
    dockerfile.write_text(text[: found.start()] + pinned + text[found.end() :], encoding="utf-8")
    return pinned


async def _digest_of(name: str, context: ssl.SSLContext) -> str:
    reference = parse_reference(name)
    rules = LookupRules(registries=(reference.host,))
    async with aclosing(HttpSession(None, context, _TIMEOUT_SECONDS)) as session:
        client = RepositoryClient(session, registry_of(reference, rules), None)
        return await client.digest(reference.tag)
