"""Lists of the objects in manifests, such as the output of `kubectl get pods,events -A -o json`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

import msgspec

from webhook.cluster.manifests import Manifests
from webhook.cluster.progress import OnProgress, ignore_progress
from webhook.core.pod import DECODE_ERRORS
from webhook.core.preview.text_objects import Json
from webhook.inspect.findings import Area, Looked
from webhook.inspect.paged import Areas, Resource
from webhook.inspect.pod_selection import PodSelection
from webhook.inspect.scan import resources

T = TypeVar("T")


class DumpReader:
    """Lists of objects in manifests. A kind without an object counts as not looked at."""

    def __init__(
        self,
        manifests: Manifests,
        on_progress: OnProgress = ignore_progress,
        pods: PodSelection = PodSelection(),  # noqa: B008 (it is frozen)
    ) -> None:
        """Read lists of manifests. `pods` selects the pods among them."""
        self.areas = Areas()
        self.problems: list[str] = list(map(str, manifests.unreadable))
        """Why files, or objects in them, could not be read."""
        self._manifests = manifests
        self._on_progress = on_progress
        self._pods = pods

    @property
    def now(self) -> datetime:
        """The time of the dump."""
        return self._manifests.newest_time

    async def objects(
        self, resource: Resource[T], namespace: str | None = None, field_selector: str = ""
    ) -> AsyncIterator[T]:
        """Yield the objects of a kind. Record in `areas` what could not be read.

        `field_selector` is one of `_selectors`, for events only.
        """
        decode = msgspec.json.Decoder(resource.type).decode
        encoded = self._manifests.objects.get(resource.kind, ())
        selected = self._events.get(field_selector, ()) if field_selector else encoded
        malformed = 0
        for index, content in enumerate(selected):
            try:
                value = decode(content)
            except DECODE_ERRORS as error:
                malformed += 1
                self.problems.append(f"{resource.kind}: {error}")
                continue
            if resource.kind == "Pod" and not self._is_selected(content):
                continue
            if not (namespace and resource.namespaced) or _namespace_of(value) == namespace:
                yield value
            self._on_progress(resource.name, index + 1, len(selected))
        whys = [] if encoded else ["the manifests contain none"]
        whys += [f"{malformed} could not be decoded"] if malformed else []
        whys += [resource.kept] if encoded and resource.kept else []
        looked = Looked.PARTLY if encoded else Looked.NOT_LOOKED_AT
        self.areas.record(
            Area(resource.name, looked if whys else Looked.LOOKED_AT, "; ".join(whys))
        )

    def _is_selected(self, pod: Json) -> bool:
        return self._pods.selects_all or self._pods.selects(msgspec.json.decode(pod))

    @cached_property
    def _events(self) -> dict[str, Sequence[Json]]:
        """The events by the field selectors that select them: a scan asks for those of each pod."""
        decode = msgspec.json.Decoder(_EventFields).decode
        selected: dict[str, list[Json]] = {}
        for content in self._manifests.objects.get(resources.EVENTS.kind, ()):
            try:
                fields = decode(content)
            except DECODE_ERRORS as error:
                self.problems.append(f"{resources.EVENTS.kind}: {error}")
                continue
            for selector in fields.selectors:
                selected.setdefault(selector, []).append(content)
        return dict(selected)


class _Named(msgspec.Struct):
    uid: str = ""


class _Source(msgspec.Struct):
    component: str = ""


class _EventFields(msgspec.Struct, rename="camel"):
    """The fields of an event by which a list selects."""

    reason: str = ""
    involved_object: _Named = msgspec.field(default_factory=_Named)
    source: _Source = msgspec.field(default_factory=_Source)
    reporting_component: str = ""

    @property
    def selectors(self) -> tuple[str, ...]:
        """The selectors that select the event. The API server takes `source` as here, too."""
        return (
            f"reason={self.reason}",
            f"involvedObject.uid={self.involved_object.uid}",
            f"source={self.source.component or self.reporting_component}",
        )


def _namespace_of(value: Any) -> str:
    """Return the namespace of an object that `resources` names."""
    namespace: str = value.metadata.namespace
    return namespace
