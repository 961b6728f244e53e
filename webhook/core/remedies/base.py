"""The interface of a remedy: it reads a pod, and gives outcomes and edits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import msgspec

from webhook.core.cluster.view import ClusterView, Namespace
from webhook.core.defects.versions import Version
from webhook.core.images import Images, LookupRules
from webhook.core.patch.builder import PodPatch
from webhook.core.pod import Pod, PodSpec
from webhook.core.reasons import Outcome


class Context(msgspec.Struct, frozen=True, gc=False):
    """What a remedy may read in addition to the pod."""

    view: ClusterView
    namespace: Namespace
    linger_image: str | None
    """The image of the helper. None if none is configured."""
    images: Images
    image_rules: LookupRules | None = None
    """The registries that the policy allows podsettle to ask. None: no look-ups."""

    def server_is_at_least(self, least: Version) -> bool:
        """Return whether the API server is known to have this release or a later one.

        If the server's version is unknown, the newest kubelet counts: a kubelet is never newer than
        its API server.
        """
        server = self.view.server_version or self.view.nodes.newest_kubelet
        return server is not None and server >= least

    def version_message(self, least: Version) -> str:
        """Return the message for an API server that is older than `least`."""
        needs = f"needs Kubernetes {least.major}.{least.minor} or later"
        server, newest = self.view.server_version, self.view.nodes.newest_kubelet
        if server is not None:
            return f"{needs}; the API server is Kubernetes {server}"
        message = f"{needs}; the API server's version is unknown"
        return f"{message}; the newest kubelet is {newest}" if newest else message

    def no_matching_node_note(self, wanted: str) -> str:
        """Return a note to append if no known node matches a RuntimeClass's nodeSelector.

        The note is empty if a node matches.
        """
        found = self.view.runtime_class(wanted)
        selector = found.node_selector.items() if found else ()
        if not selector or any(selector <= n.labels.items() for n in self.view.nodes.all):
            return ""
        labels = ",".join(f"{key}={value}" for key, value in selector)
        return f"; no known node has the labels of the class ({labels}), so the pod waits for one"

    def spec_with_runtime_class(
        self, pod: Pod, patch: PodPatch, wanted: str | None = None
    ) -> PodSpec:
        """Return the pod's spec with the nodeSelector of the RuntimeClass that it will have.

        That is the class that an earlier remedy has set, or else `wanted`. The API server merges
        the class's nodeSelector into the pod before it reinvokes the webhook. A decision that
        ignored it would change between the first call and the reinvocation.
        """
        name = patch.runtime_class_name or wanted
        found = self.view.runtime_class(name) if name else None
        if found is None or not found.node_selector:
            return pod.spec
        selector = {**found.node_selector, **(pod.spec.node_selector or {})}
        return msgspec.structs.replace(pod.spec, node_selector=selector)


class Remedy(Protocol):
    """The function that applies a remedy: decides on one pod and adds its edits to the patch."""

    def __call__(
        self, pod: Pod, settings: Any, context: Context, patch: PodPatch
    ) -> Iterator[Outcome]:
        """Yield outcomes in the order of the pod's containers.

        The caller fills in their remedy and policy.
        """
