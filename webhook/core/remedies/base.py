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
    """What a remedy may look at beside the pod."""

    view: ClusterView
    namespace: Namespace
    linger_image: str | None
    """The image of the helper; None where nobody said which it is."""
    images: Images
    image_rules: LookupRules | None = None
    """Where the policy lets images be looked up; None where it does not."""

    def server_is_at_least(self, least: Version) -> bool:
        """Whether the API server is known to be of this release or later.

        Without a server to ask, its nodes tell: a kubelet is never newer than its API server.
        """
        server = self.view.server_version or self.view.nodes.newest_kubelet
        return server is not None and server >= least

    def version_message(self, least: Version) -> str:
        """What is known of the API server's release where it is not `least` or later."""
        takes = f"Kubernetes {least.major}.{least.minor} or later"
        server, newest = self.view.server_version, self.view.nodes.newest_kubelet
        if server is not None:
            return f"the API server is Kubernetes {server}; it takes {takes}"
        unknown = f"the API server is not known to be {takes}, which it takes"
        return f"{unknown}; the newest kubelet here is {newest}" if newest else unknown

    def no_matching_node_note(self, wanted: str) -> str:
        """What to add where no known node has the labels that a RuntimeClass asks for."""
        found = self.view.runtime_class(wanted)
        selector = found.node_selector.items() if found else ()
        if not selector or any(selector <= n.labels.items() for n in self.view.nodes.all):
            return ""
        labels = ",".join(f"{key}={value}" for key, value in selector)
        return f"; no known node has its labels ({labels}): the pod waits for one"

    def spec_with_runtime_class(
        self, pod: Pod, patch: PodPatch, wanted: str | None = None
    ) -> PodSpec:
        """The pod's spec with the nodeSelector that the API server merges in from its RuntimeClass.

        Its class is the one that it names or that a remedy has chosen, or else `wanted`. Without
        the look ahead the answer would change between the first call and the reinvocation.
        """
        name = patch.runtime_class_name or wanted
        found = self.view.runtime_class(name) if name else None
        if found is None or not found.node_selector:
            return pod.spec
        selector = {**found.node_selector, **(pod.spec.node_selector or {})}
        return msgspec.structs.replace(pod.spec, node_selector=selector)


class Remedy(Protocol):
    """Decides for one pod, and puts the edits that it decides on into the patch."""

    def __call__(
        self, pod: Pod, settings: Any, context: Context, patch: PodPatch
    ) -> Iterator[Outcome]:
        """Outcomes in the order of the pod's containers. The caller fills in remedy and policy."""
