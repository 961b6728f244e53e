"""The resources that a scan lists."""

from __future__ import annotations

from webhook.core.pod import WireStruct
from webhook.inspect.objects import Event, LiveMetadata, LivePod, SigningRequest
from webhook.inspect.paged import Resource


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
