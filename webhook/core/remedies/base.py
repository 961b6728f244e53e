"""The interface of remedies: what a remedy reads, and what the registry holds of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from webhook.core.cluster.helper_version import HelperFeature
from webhook.core.cluster.nodes import MAX_NODE_SELECTOR_LABELS
from webhook.core.cluster.remedy_need import Need
from webhook.core.cluster.view import ClusterFacts
from webhook.core.constants import HELPER, OWN_CONTAINERS
from webhook.core.decision_input import NamespaceFacts, PodFacts
from webhook.core.defects.versions import Version
from webhook.core.images import Images, LookupRules
from webhook.core.patch.builder import PodPatch
from webhook.core.patch.edits import Edit
from webhook.core.pod import Container, SpecFields
from webhook.core.reasons import Outcome, Reason
from webhook.core.remedies.native import Native
from webhook.core.remedies.policy_nodes import PolicyNodes


class Context(msgspec.Struct, frozen=True, gc=False):
    """The facts and settings that a remedy may read in addition to the pod."""

    cluster: ClusterFacts
    namespace: NamespaceFacts
    images: Images
    image_rules: LookupRules | None = None
    """The registries that the policy allows podsettle to ask. None if it allows no look-ups."""

    def server_is_older_than(self, minimum: Version) -> str:
        """Return a message unless the API server is known to have this release or a later one.

        The text is empty if it is. If the server's version is unknown, the newest kubelet counts: a
        kubelet is never newer than its API server.
        """
        server, newest = self.cluster.server_version, self.cluster.nodes.newest_kubelet
        known = server or newest
        if known is not None and known >= minimum:
            return ""
        needs = f"needs Kubernetes {minimum.major}.{minimum.minor} or later"
        if server is not None:
            return f"{needs}; the API server is Kubernetes {server}"
        message = f"{needs}; the API server's version is unknown"
        return f"{message}; the newest kubelet is {newest}" if newest else message

    def missing_in_helper(self, feature: HelperFeature) -> str:
        """Return why the helper must not be used with an option, or an empty text if it may be.

        The text is the message of an outcome `HelperTooOld`. An image is configured.
        """
        cluster = self.cluster
        return feature.missing(cluster.linger_image or "", cluster.linger_version)

    def no_matching_node_note(self, class_name: str) -> str:
        """Return a note for a message if no known node has the labels that a RuntimeClass selects.

        Return an empty text if a node has them, or if the class selects no labels.
        """
        runtime_class = self.cluster.runtime_classes.get(class_name)
        clause = runtime_class.no_matching_node(self.cluster.nodes.all) if runtime_class else ""
        return f"; {clause}" if clause else ""

    def spec_with_runtime_class(
        self, pod: PodFacts, patch: PodPatch, class_name: str | None = None
    ) -> SpecFields:
        """Return the pod's fields with the nodeSelector of the RuntimeClass that it will have.

        An earlier remedy may have set the class. If none has, the pod will have the class
        `class_name`. The API server merges the class's nodeSelector into the pod before it
        reinvokes the webhook. A decision that ignored this nodeSelector would change between the
        first call and the reinvocation.
        """
        name = patch.runtime_class_name or class_name
        runtime_class = self.cluster.runtime_classes.get(name) if name else None
        if runtime_class is None or not runtime_class.node_selector:
            return pod
        own_selector = pod.node_selector or {}
        if len(own_selector) > MAX_NODE_SELECTOR_LABELS:
            return pod  # It fits no node in any case, and the labels would be copied a dozen times.
        selector = {**runtime_class.node_selector, **own_selector}
        return msgspec.structs.replace(pod, node_selector=selector)


S = TypeVar("S")
"""The type of a remedy's settings."""


class FoundContainers(NamedTuple):
    """The names of the containers at which a scan found a defect."""

    init: tuple[str, ...] = ()
    regular: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RuntimeClassSetting:
    """The setting of a remedy that names a RuntimeClass."""

    field: str
    """The name of the field in the model of the settings."""
    moves_every_pod: Callable[[Any], bool] = lambda _settings: False
    """Return whether every pod of the policy gets the class, and so lands on its nodes."""


@dataclass(frozen=True, slots=True)
class Remedy(Generic[S]):
    """Everything that the rest of podsettle knows of one remedy.

    The policy model, the order of application, status, hints and documentation read it.
    """

    name: str
    """The name in policies, annotations and metrics."""
    description: str
    """What the remedy does, for the schema of policies."""
    settings: Any
    """The type of the settings in a policy: a StrictModel, or a Literal with one value."""
    apply: Callable[[PodFacts, S, Context, PodPatch], Iterator[Outcome]]
    """Decide on one pod, and add the edits to the patch.

    The function yields outcomes in the order of the pod's containers. The caller sets the fields
    `remedy` and `policy` of each outcome.
    """
    own_reasons: frozenset[Reason]
    """The reasons that `apply` gives beside Applied and AlreadySettled, which all remedies give."""
    effect: Callable[[S], str]
    """Return what the remedy does, as a phrase after `is` or `are`, for the pod's summary.

    Examples are `kept alive for at least 500 ms` and `put under RuntimeClass kata`. An outcome of
    `apply` can have a phrase of its own, if what the pod has already is not what the settings say.
    """
    proposed_settings: Callable[[FoundContainers], object] | None
    """Return the settings in a policy that `podsettle scan` proposes for the pods that it found.

    None if it must not propose the remedy, because only the author of the pods knows whether it is
    safe there."""
    native: Native[S] | str
    """How a native policy does the same, or why none is written, as a clause."""
    edits: frozenset[Edit] = frozenset()
    """The kinds of edits that `apply` may make."""
    fields: frozenset[str] = frozenset()
    """The fields of the spec that `apply` may set, such as `/spec/runtimeClassName`."""
    annotations: frozenset[str] = frozenset()
    """The annotations that `apply` may set."""
    container_sign: Callable[[Container], str] = lambda _container: ""
    """Return what the remedy did, in a sentence, if a container shows a sign of it."""
    undo_in_container: Callable[[dict[str, Any]], None] = lambda _container: None
    """Remove from a container, as JSON, what `apply` has set in it."""
    node_configuration: str = ""
    """The command that prints the configuration of nodes without which the remedy has no effect.
    Empty if it needs none."""
    still_needed: Callable[[S, PolicyNodes], Need | None] | None = None
    """Return whether nodes still need the remedy, or None if no known release makes it unnecessary.

    None here leaves the answer to the catalogue of defects."""
    runtime_class: RuntimeClassSetting | None = None
    needs_entrypoints: bool = False
    """Whether most containers that the remedy is for have no `command`, as servers do."""
    helper_feature: HelperFeature | None = None
    """What the helper has to support for the remedy, if not every version does."""
    hints: Callable[[S], Iterable[str]] = lambda _settings: ()
    """Return notes on valid settings that may not have the effect that their author wants."""

    @property
    def reasons(self) -> frozenset[Reason]:
        """The reasons that `apply` gives, without those that its caller gives for any remedy."""
        return self.own_reasons | {Reason.APPLIED, Reason.ALREADY_SETTLED}

    @property
    def is_traceable(self) -> bool:
        """Whether the remedy leaves a wrapper or a container of podsettle in the pod.

        What the other remedies set, the author of a pod can set in the same way.
        """
        return not self.edits.isdisjoint({Edit.COMMAND, Edit.INIT_CONTAINER})

    def undo(self, pod: dict[str, Any]) -> None:
        """Remove from a pod, as JSON, what `apply` has set in it, or could have set."""
        spec = pod["spec"]
        for path in self.fields:
            *parents, field = path.strip("/").split("/")
            reduce(lambda value, key: value.get(key) or {}, parents, pod).pop(field, None)
        for key in self.annotations:
            (pod["metadata"].get("annotations") or {}).pop(key, None)
        if Edit.INIT_CONTAINER in self.edits:
            for key, names in (("initContainers", OWN_CONTAINERS), ("volumes", {HELPER})):
                found = spec.pop(key, None) or ()
                if others := [each for each in found if each.get("name") not in names]:
                    spec[key] = others
        for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
            self.undo_in_container(container)

    def class_name(self, settings: S) -> str | None:
        """Return the RuntimeClass that the settings name, or None."""
        if self.runtime_class is None:
            return None
        name: str | None = getattr(settings, self.runtime_class.field)
        return name
