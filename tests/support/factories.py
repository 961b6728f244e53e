"""Factories of small pods, policies, views and reviews."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jsonpatch

from tests.support import reviews
from tests.support.both_ways import admit_both_ways
from tests.support.defects import PINNED
from tests.support.reviews import make_request
from webhook.cluster.decode import read_namespace, read_node, read_runtime_class
from webhook.core.admission.decider import Decider, OperatorSettings
from webhook.core.admission.decision import Decision
from webhook.core.admission.response import warnings_for
from webhook.core.admission.summary import unmet_outcomes
from webhook.core.cluster.nodes import Nodes
from webhook.core.defects.versions import Version
from webhook.core.images import NO_IMAGES, ImageQuery, KnownImages
from webhook.core.patch.self_check import Operation
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.model import SettlePolicy, parse_policy
from webhook.core.policy.snapshot import Snapshot
from webhook.core.reasons import Outcome
from webhook.core.remedies.shell_wrapper import wrapper

Json = dict[str, Any]

IMAGE = "registry.example/podsettle/linger:0.2.0"
SETTINGS = OperatorSettings(own_namespace="podsettle-system", linger_image=IMAGE)
UID = reviews.UID
LINGER = ["/podsettle/linger", "--sleep", "10ms", "--min-lifetime", "500ms", "--"]


def container(name: str, *command: str, **fields: Any) -> Json:
    made: Json = {"name": name, "image": "registry.example/app:1", **fields}
    return {**made, "command": list(command)} if command else made


def pod(
    *init: Json,
    containers: Iterable[Json] = (),
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Json:
    """Return a pod with these init containers. Its container is `main` unless there are others.

    The first one mounts the claims of the pod, unless it sets `volumeMounts`.
    """
    metadata: Json = {"name": "p", "namespace": "ci"}
    if labels is not None:
        metadata["labels"] = dict(labels)
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    made: Json = {"containers": list(containers) or [container("main", "/bin/main")], **spec}
    if mounts := mounts_of_claims(spec):
        made["containers"] = [{**mounts, **made["containers"][0]}, *made["containers"][1:]]
    if init:
        made["initContainers"] = list(init)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made}


def mounts_of_claims(spec: Json) -> Json:
    """Return the `volumeMounts` of a container that mounts a pod's claims. Empty without claims."""
    volumes = spec.get("volumes")
    mounts = [
        {"name": each["name"], "mountPath": f"/{each['name']}"}
        for each in (volumes if isinstance(volumes, list) else ())
        if isinstance(each, dict) and {"persistentVolumeClaim", "ephemeral"} & each.keys()
    ]
    return {"volumeMounts": mounts} if mounts else {}


def init_containers(after: Json) -> list[Json]:
    containers: list[Json] = after["spec"].get("initContainers", [])
    return containers


def policy_document(name: str = "p", *, remedies: Json | None = None, **spec: Any) -> Json:
    """Return a SettlePolicy. Without a `namespaceSelector` in `spec`, every namespace matches.

    With None as its `namespaceSelector`, the policy has none, and namespaces choose it.
    """
    chosen = {"postInitSleep": {}} if remedies is None else remedies
    fields = {"namespaceSelector": {}, "remedies": chosen, **spec}
    if fields["namespaceSelector"] is None:
        del fields["namespaceSelector"]
    return {
        "apiVersion": "podsettle.dev/v1alpha1",
        "kind": "SettlePolicy",
        "metadata": {"name": name},
        "spec": fields,
    }


def is_policy(document: object) -> bool:
    return isinstance(document, Mapping) and document.get("kind") == "SettlePolicy"


def policy(name: str = "p", *, remedies: Json | None = None, **spec: Any) -> SettlePolicy:
    return parse_policy(policy_document(name, remedies=remedies, **spec))


def namespace(
    name: str, labels: Json | None = None, annotations: Mapping[str, str] | None = None
) -> Json:
    return {"metadata": {"name": name, "labels": labels, "annotations": annotations}}


def node(
    name: str = "n",
    runtime: str = "cri-o://1.33.12",
    kubelet: str = "v1.33.12",
    labels: Json | None = None,
    handlers: Iterable[str] | None = None,
) -> Json:
    status: Json = {"nodeInfo": {"containerRuntimeVersion": runtime, "kubeletVersion": kubelet}}
    if handlers is not None:
        status["runtimeHandlers"] = [{"name": handler} for handler in handlers]
    return {"metadata": {"name": name, "labels": labels}, "status": status}


MODERN = node("modern", "containerd://2.1.5", "v1.36.0")
"""A node that mounts image volumes."""


def runtime_class(
    name: str,
    overhead: Json | None = None,
    selector: Json | None = None,
    annotations: Json | None = None,
) -> Json:
    return {
        "metadata": {"name": name, "annotations": annotations},
        "handler": name,
        "overhead": {"podFixed": overhead} if overhead else None,
        "scheduling": {"nodeSelector": selector} if selector else None,
    }


def in_shell(command: Sequence[str], *, sleep_ms: int = 0, min_lifetime_ms: int = 0) -> list[str]:
    """Return the command with the shell wrapper in front."""
    prefix = wrapper(command[0], sleep_ms=sleep_ms, min_lifetime_ms=min_lifetime_ms)
    return [*prefix, *command]


def view(
    *policies: SettlePolicy,
    namespaces: Iterable[Json] = (),
    classes: Iterable[Json] = (),
    nodes: Iterable[Json] = (),
    server: Version | None = None,
) -> Snapshot:
    spaces = [read_namespace(document) for document in namespaces]
    known = [read_runtime_class(document) for document in classes]
    return Snapshot(
        policies=PolicySet(policies),
        namespaces={space.name: space for space in spaces},
        runtime_classes={each.name: each for each in known},
        nodes=Nodes((read_node(document) for document in nodes), PINNED),
        server_version=server,
    )


@dataclass(frozen=True)
class Decided:
    """A decision as users see it."""

    decision: Decision

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        return self.decision.outcomes

    @property
    def policies(self) -> tuple[str, ...]:
        return self.decision.policies

    @property
    def missing_images(self) -> tuple[ImageQuery, ...]:
        return self.decision.missing_images

    @property
    def unmet(self) -> tuple[Outcome, ...]:
        """The outcomes for remedies that policies wanted, and the pod could not get."""
        return tuple(each for each in unmet_outcomes(self.outcomes) if each.policy)

    @property
    def applied_pairs(self) -> tuple[tuple[str, str], ...]:
        return self.decision.texts.applied_pairs

    @property
    def operations(self) -> tuple[Operation, ...]:
        return self.decision.operations

    @property
    def warnings(self) -> list[str]:
        return warnings_for(self.outcomes)

    @property
    def audit_annotations(self) -> dict[str, str]:
        return self.decision.texts.audit_annotations


def decide_pod(
    pod: object,
    view: Snapshot,
    *,
    namespace: str = "ci",
    settings: OperatorSettings = SETTINGS,
    images: KnownImages = NO_IMAGES,
) -> Decided:
    """Return the decision, and check that the answer with a cache is equal."""
    admit_both_ways(json.dumps(review(pod, namespace=namespace)).encode(), view, settings, images)
    request = make_request(pod, namespace)
    return Decided(Decider(settings).decide(request, view, images))


def review(document: Any, **request: Any) -> Json:
    """Return an AdmissionReview in the form that the API server sends."""
    options = {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}
    made = reviews.review({}, namespace="ci", options=options)
    made["request"] |= {"object": document, **request}
    return made


def patched(pod: Json, decision: Decided | Decision) -> Json:
    """Return the pod to which the API server has applied the patch."""
    after: Json = jsonpatch.apply_patch(pod, list(decision.operations))
    return after


def mutate_pod(pod: Json, view: Snapshot, **options: Any) -> Json:
    """Return the pod after the patch, and check that a second call changes nothing."""
    after = patched(pod, decide_pod(pod, view, **options))
    assert decide_pod(after, view, **options).operations == ()
    return after


def reasons(decision: Decided | Decision) -> list[str]:
    """Return the reason of each outcome, with the container as a prefix if there is one."""
    return [
        f"{o.container}: {o.reason}" if o.container else str(o.reason) for o in decision.outcomes
    ]


def qos(document: Json) -> str:
    """Return the QoS class by the rules of Kubernetes: pkg/apis/core/v1/helper/qos.

    Init containers count.
    """
    spec = document["spec"]
    all_ = [*(spec.get("initContainers") or ()), *spec["containers"]]
    counted = [
        {
            kind: {
                key: value
                for key, value in ((c.get("resources") or {}).get(kind) or {}).items()
                if key in ("cpu", "memory") and value not in (0, "0")
            }
            for kind in ("limits", "requests")
        }
        for c in all_
    ]
    if not any(c["limits"] or c["requests"] for c in counted):
        return "BestEffort"
    guaranteed = all(c["limits"].keys() == {"cpu", "memory"} for c in counted) and all(
        c["requests"] == c["limits"] for c in counted
    )
    return "Guaranteed" if guaranteed else "Burstable"
