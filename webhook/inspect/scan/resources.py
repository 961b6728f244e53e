"""The resources that a scan lists, and the source of their objects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from webhook.core.pod import WireStruct
from webhook.inspect.objects import Event, LiveMetadata, LivePod, SigningRequest
from webhook.inspect.paged import Areas, Resource

T = TypeVar("T")


class NamedObject(WireStruct):
    """The metadata of an object. The rest of a node is in the view of the cluster."""

    metadata: LiveMetadata


PODS = Resource("pods", "Pod", LivePod)
NODE_METADATA = Resource("nodes", "Node", NamedObject, namespaced=False, metadata_only=True)
EVENTS = Resource(
    "events", "Event", Event, kept="the API server keeps events for an hour by default"
)
SIGNING_REQUESTS = Resource(
    "certificatesigningrequests",
    "CertificateSigningRequest",
    SigningRequest,
    group="certificates.k8s.io",
    namespaced=False,
    kept="Kubernetes deletes approved requests after an hour",
)
ABOUT = "involvedObject.uid="
"""The beginning of the field selector for the events about one object."""
ALL = (PODS, NODE_METADATA, EVENTS, SIGNING_REQUESTS)


class ObjectReader(Protocol):
    """A source of objects: an API server, or the files of a dump."""

    areas: Areas
    """What could be read so far."""

    @property
    def now(self) -> datetime:
        """The time at which the cluster has, or had, these objects."""

    def objects(
        self,
        resource: Resource[T],
        namespace: str | None = None,
        field_selectors: Sequence[str] = (),
    ) -> AsyncIterator[T]:
        """Yield the objects of lists. Record in `areas` what could not be read. Raise nothing.

        A source may ignore a field selector, so callers have to select again.
        """
