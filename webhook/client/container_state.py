"""Reads the state of one container from a Pod object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias
from urllib.parse import quote

import msgspec

from webhook.core.types import Json

FINAL_PHASES = ("Succeeded", "Failed")
# A Pod lists containers in `spec.KINDs` and their statuses in `status.KINDStatuses`.
_CONTAINER_KINDS = ("container", "initContainer", "ephemeralContainer")


class PodName(NamedTuple):
    """A pod's namespace and name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"pod {self.namespace}/{self.name}"

    @property
    def path(self) -> str:
        """The path of the pod on the API server."""
        return f"/api/v1/namespaces/{quote(self.namespace, '')}/pods/{quote(self.name, '')}"


class PodError(Exception):
    """An error that the state of the pod causes. Retrying the request does not help."""


class PodNotFoundError(PodError):
    """The pod did not exist at the first request."""


class PodDeletedError(PodError):
    """The pod was deleted before its container had ended or its log was complete."""


class ContainerError(PodError):
    """The pod does not have the named container, or has several and the caller named none."""


class NotAPodError(PodError):
    """The answer is not a Pod, so the server is not an API server."""


class NotStartedError(PodError):
    """The container has not started yet, and the caller asked not to wait for the start."""


class GaveUpError(PodError):
    """The back-off was spent before the request succeeded."""


class NoPreviousRunError(PodError):
    """The container has not been started again, so it has no previous run."""


class WaitTimeoutError(PodError):
    """The container had not ended when the caller's limit had passed."""


class NeverTerminatedError(GaveUpError):
    """The pod has ended, but its container's terminated state was never written."""


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str
    resource_version: str


class _ExitCodes(msgspec.Struct):
    operator: str | None = None
    values: list[int] | None = None


class _Rule(msgspec.Struct, rename="camel"):
    exit_codes: _ExitCodes | None = None


class _Container(msgspec.Struct, rename="camel"):
    name: str
    restart_policy: str | None = None
    restart_policy_rules: list[_Rule] | None = None


class _Spec(msgspec.Struct, rename="camel"):
    containers: list[_Container]
    init_containers: list[_Container] | None = None
    ephemeral_containers: list[_Container] | None = None
    restart_policy: str | None = None


class _Waiting(msgspec.Struct):
    reason: str | None = None
    message: str | None = None


class _Terminated(msgspec.Struct, rename="camel"):
    """Its `exitCode` is checked when it is needed."""

    container_id: str | None = msgspec.field(default=None, name="containerID")


class _State(msgspec.Struct):
    waiting: _Waiting | None = None
    terminated: _Terminated | None = None


class _ContainerStatus(msgspec.Struct, rename="camel"):
    name: str
    state: _State | None = None
    last_state: _State | None = None
    container_id: str | None = msgspec.field(default=None, name="containerID")


_Statuses: TypeAlias = list[_ContainerStatus] | None


class _Status(msgspec.Struct, rename="camel"):
    phase: str | None = None
    container_statuses: _Statuses = None
    init_container_statuses: _Statuses = None
    ephemeral_container_statuses: _Statuses = None


class _Pod(msgspec.Struct):
    """The fields that this package reads."""

    metadata: _Metadata
    spec: _Spec
    status: _Status | None = None


def check_pod(document: object, name: PodName) -> None:
    """Raise NotAPodError if a document is not a Pod, for example the error page of a proxy."""
    try:
        msgspec.convert(document, _Pod)
    except msgspec.ValidationError as error:
        says_pod = isinstance(document, dict) and document.get("kind") == "Pod"
        found = f": {error}" if says_pod else ""
        raise NotAPodError(f"{name}: the answer is not a Pod{found}") from None


def choose_container(pod: Json, name: str | None) -> str:
    """Return the name of the container to use.

    Without `name`, this is the only regular container. Raises ContainerError if the pod does not
    have the named container, or if `name` is None and the pod has several containers.
    """
    regular = [container["name"] for container in pod["spec"]["containers"]]
    if name is None:
        if len(regular) == 1:
            only: str = regular[0]
            return only
        raise ContainerError(f"the pod has several containers, name one: {', '.join(regular)}")
    names = [c["name"] for kind in _CONTAINER_KINDS for c in pod["spec"].get(f"{kind}s") or ()]
    if name not in names:
        raise ContainerError(f"the pod has no container {name!r}, only {', '.join(names)}")
    return name


def pod_phase(pod: Json) -> str:
    """Return the pod's phase. A pod without a status is Pending."""
    return (pod.get("status") or {}).get("phase") or "Pending"


def container_status(pod: Json, container: str) -> Json:
    """Return the container's status, or an empty one if the kubelet has not written it yet.

    The kubelet sorts statuses by name, so the first status may belong to an injected container.
    """
    return next((item for item in _container_statuses(pod) if item["name"] == container), {})


def terminated_state(pod: Json, container: str) -> Json | None:
    """Return the container's terminated state, or None if the container waits or runs."""
    terminated: Json | None = (container_status(pod, container).get("state") or {}).get(
        "terminated"
    )
    return terminated


def may_restart(pod: Json, container: str, exit_code: int) -> bool:
    """Return whether the kubelet may restart a container with this exit code.

    Source: `ContainerShouldRestart` in kubernetes `pkg/api/v1/pod`, and for init containers
    `computeInitContainerActions` in `pkg/kubelet/kuberuntime`.
    """
    kind, spec = _find_container(pod, container)
    if kind == "ephemeralContainer":
        return False
    if any(_rule_matches(rule, exit_code) for rule in spec.get("restartPolicyRules") or ()):
        return True
    policy = spec.get("restartPolicy")
    if policy is None:
        policy = pod["spec"].get("restartPolicy") or "Always"
        if kind == "initContainer" and policy == "Always":
            policy = "OnFailure"
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def succeeded_implies_zero(pod: Json, container: str) -> bool:
    """Return whether the phase Succeeded implies that this container's last exit code was 0.

    The phase implies 0 for regular containers, and for init containers, which run before them. For
    native sidecars the phase implies only that they have stopped. For ephemeral containers it
    implies nothing (`getPhase` in kubernetes `pkg/kubelet`).
    """
    kind, spec = _find_container(pod, container)
    is_sidecar = kind == "initContainer" and spec.get("restartPolicy") == "Always"
    return kind != "ephemeralContainer" and not is_sidecar


def _find_container(pod: Json, container: str) -> tuple[str, Json]:
    """Return the kind and the spec of a container, which must exist in the pod."""
    return next(
        (kind, spec)
        for kind in _CONTAINER_KINDS
        for spec in pod["spec"].get(f"{kind}s") or ()
        if spec["name"] == container
    )


def _rule_matches(rule: Json, exit_code: int) -> bool:
    """Return whether a rule of `restartPolicyRules` applies to an exit code."""
    codes = rule.get("exitCodes") or {}
    return (exit_code in (codes.get("values") or ())) == (codes.get("operator") == "In")


def previous_terminated_state(pod: Json, container: str) -> Json | None:
    """Return the terminated state of the previous run if the container waits, else None."""
    status = container_status(pod, container)
    if "waiting" not in (status.get("state") or {}):
        return None
    terminated: Json | None = (status.get("lastState") or {}).get("terminated")
    return terminated


def has_started(pod: Json, container: str) -> bool:
    """Return whether the container has started at least once, so its log may exist."""
    state = container_status(pod, container).get("state") or {}
    return (
        "running" in state
        or "terminated" in state
        or previous_terminated_state(pod, container) is not None
        or pod_phase(pod) in FINAL_PHASES
    )


def waiting_reason(pod: Json, container: str) -> str:
    """Return why a container waits, as `REASON: MESSAGE`, or an empty text if it does not wait."""
    state = (container_status(pod, container).get("state") or {}).get("waiting") or {}
    return ": ".join(filter(None, (state.get("reason"), state.get("message"))))


def last_run_id(pod: Json, container: str) -> str:
    """Return the runtime's ID of the container's last run, or an empty text if it has not run."""
    run = container_status(pod, container)
    if previous_terminated_state(pod, container) is not None:
        run = run["lastState"]["terminated"]
    return run.get("containerID") or ""


def _container_statuses(pod: Json) -> Iterator[Json]:
    for kind in _CONTAINER_KINDS:
        yield from (pod.get("status") or {}).get(f"{kind}Statuses") or ()
