"""Lists of the objects in manifests, such as the output of `kubectl get pods,events -A -o json`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import msgspec

from webhook.cluster.manifests import Manifests
from webhook.cluster.progress import OnProgress, ignore_progress
from webhook.core.pod import DECODE_ERRORS
from webhook.inspect.findings import Area, Looked
from webhook.inspect.paged import Areas, PagedReader, Resource
from webhook.inspect.scan.resources import ABOUT, EVENTS

T = TypeVar("T")


class DumpReader:
    """Lists of objects in manifests. A kind without an object counts as not looked at."""

    def __init__(self, manifests: Manifests, on_progress: OnProgress = ignore_progress) -> None:
        self.areas = Areas()
        self.problems: list[str] = []
        """Why objects could not be read."""
        self._manifests = manifests
        self._on_progress = on_progress

    @property
    def now(self) -> datetime:
        """The time of the dump."""
        return self._manifests.newest_time

    async def objects(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        field_selectors: Sequence[str] = (),
    ) -> AsyncIterator[T]:
        """Yield the objects of a kind. Record in `areas` what could not be read.

        Of the field selectors, only those with ABOUT are regarded.
        """
        decode = msgspec.json.Decoder(resource.type).decode
        stored = self._manifests.objects.get(resource.kind, ())
        about = [each for each in field_selectors if each.startswith(ABOUT)]
        indexes: Sequence[int] = range(len(stored))
        if about:
            indexes = [index for each in about for index in self._events_about.get(each, ())]
        malformed = 0
        for count, index in enumerate(indexes, 1):
            try:
                value: Any = decode(stored[index])
            except DECODE_ERRORS as error:
                malformed += 1
                self.problems.append(f"{_name_of(stored[index], resource.kind)}: {error}")
                continue
            if not (namespace and resource.namespaced) or value.metadata.namespace == namespace:
                yield value
            self._on_progress(resource.name, count, len(indexes))
        absent = Area(resource.name, Looked.NOT_LOOKED_AT, "the manifests contain none")
        self.areas.record(resource.area(malformed) if stored else absent)

    @cached_property
    def _events_about(self) -> Mapping[str, Sequence[int]]:
        """The events about each object, by the selector: a scan asks for those of single pods."""
        decode = msgspec.json.Decoder(EVENTS.type).decode
        found: defaultdict[str, list[int]] = defaultdict(list)
        for index, content in enumerate(self._manifests.objects.get(EVENTS.kind, ())):
            with suppress(*DECODE_ERRORS):
                found[f"{ABOUT}{decode(content).involved_object.uid}"].append(index)
        return found


def _name_of(content: bytes, kind: str) -> str:
    """Return the kind, namespace and name of an object, as far as they are texts."""
    metadata = msgspec.json.decode(content).get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    names = [each for key in ("namespace", "name") if isinstance(each := found.get(key), str)]
    return f"{kind} {'/'.join(names)}".rstrip()


ObjectReader: TypeAlias = PagedReader | DumpReader
"""A source of objects: an API server, or the files of a dump."""
