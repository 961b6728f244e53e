"""Reads the state of one container from a Pod object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

Json = dict[str, Any]

FINAL = ("Succeeded", "Failed")
_KINDS = ("container", "initContainer", "ephemeralContainer")


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
    """An error of the pod that no retry can cure."""


class PodNotFoundError(PodError):
    """The pod did not exist at the first request."""


class PodDeletedError(PodError):
    """The pod was deleted before its container had ended or its log was complete."""


class ContainerError(PodError):
    """The pod has no such container, or has several and none was named."""


class NotAPodError(PodError):
    """The answer is not a Pod, so the server is not an API server."""


class NotStartedError(PodError):
    """The container has not run yet, and the caller did not want to wait for it."""


class GaveUpError(PodError):
    """The back-off was spent before the request succeeded."""


class NeverTerminatedError(GaveUpError):
    """The pod has ended, but its container's terminated state was never written."""


def check_pod(found: object, name: PodName) -> None:
    """Raise NotAPodError if a document is not a Pod, for example the error page of a proxy."""
    if not (
        isinstance(found, dict)
        and isinstance(metadata := found.get("metadata"), dict)
        and isinstance(spec := found.get("spec"), dict)
        and isinstance(spec.get("containers"), list)
        and "uid" in metadata
        and "resourceVersion" in metadata
    ):
        raise NotAPodError(f"{name}: the answer is not a Pod")


def choose_container(pod: Json, wanted: str | None) -> str:
    """Return the named container, else the only regular one. Raises ContainerError."""
    regular = [container["name"] for container in pod["spec"]["containers"]]
    if wanted is None:
        if len(regular) == 1:
            only: str = regular[0]
            return only
        raise ContainerError(f"the pod has several containers, name one: {', '.join(regular)}")
    names = [c["name"] for kind in _KINDS for c in pod["spec"].get(f"{kind}s") or ()]
    if wanted not in names:
        raise ContainerError(f"the pod has no container {wanted!r}, only {', '.join(names)}")
    return wanted


def phase(pod: Json) -> str:
    """Return the pod's phase. A pod without a status is Pending."""
    return pod.get("status", {}).get("phase") or "Pending"


def status(pod: Json, container: str) -> Json:
    """Return the container's status. It is empty until the kubelet has written one.

    The kubelet sorts statuses by name, so the first may be that of an injected container.
    """
    return next((found for found in _statuses(pod) if found["name"] == container), {})


def terminated(pod: Json, container: str) -> Json | None:
    """Return the container's terminated state, or None if it is in another state now."""
    found: Json | None = (status(pod, container).get("state") or {}).get("terminated")
    return found


def may_restart(pod: Json, container: str, exit_code: int) -> bool:
    """Return whether the kubelet may restart a container with this exit code.

    Source: `ContainerShouldRestart` in kubernetes `pkg/api/v1/pod`, and for init containers
    `computeInitContainerActions` in `pkg/kubelet/kuberuntime`.
    """
    kind, spec = _find(pod, container)
    if kind == "ephemeralContainer":
        return False
    if any(_matches(rule, exit_code) for rule in spec.get("restartPolicyRules") or ()):
        return True
    policy = spec.get("restartPolicy")
    if policy is None:
        policy = pod["spec"].get("restartPolicy") or "Always"
        if kind == "initContainer" and policy == "Always":
            policy = "OnFailure"
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def succeeded_implies_zero(pod: Json, container: str) -> bool:
    """Return whether the phase Succeeded implies that this container's last exit code was 0.

    It does for regular containers, and for init containers, which precede them. For native
    sidecars the phase implies only that they have stopped. For ephemeral containers it implies
    nothing (`getPhase` in kubernetes `pkg/kubelet`).
    """
    kind, spec = _find(pod, container)
    is_sidecar = kind == "initContainer" and spec.get("restartPolicy") == "Always"
    return kind != "ephemeralContainer" and not is_sidecar


def _find(pod: Json, container: str) -> tuple[str, Json]:
    """Return the kind and the spec of a container. The pod must have it."""
    return next(
        (kind, found)
        for kind in _KINDS
        for found in pod["spec"].get(f"{kind}s") or ()
        if found["name"] == container
    )


def _matches(rule: Json, exit_code: int) -> bool:
    codes = rule.get("exitCodes") or {}
    return (exit_code in (codes.get("values") or ())) == (codes.get("operator") == "In")


def last_terminated(pod: Json, container: str) -> Json | None:
    """Return the terminated state of the previous run, if the container waits for its next run."""
    found = status(pod, container)
    if "waiting" not in (found.get("state") or {}):
        return None
    last: Json | None = (found.get("lastState") or {}).get("terminated")
    return last


def has_run(pod: Json, container: str) -> bool:
    """Return whether the container has run, so that a log may exist."""
    state = status(pod, container).get("state") or {}
    return (
        "running" in state
        or "terminated" in state
        or last_terminated(pod, container) is not None
        or phase(pod) in FINAL
    )


def waiting(pod: Json, container: str) -> str:
    """Return the kubelet's reason and message for a container that waits, or an empty text."""
    state = (status(pod, container).get("state") or {}).get("waiting") or {}
    return ": ".join(filter(None, (state.get("reason"), state.get("message"))))


def run_id(pod: Json, container: str) -> str:
    """Return the runtime's ID of the container's last run, or an empty text before the first."""
    run = status(pod, container)
    if last_terminated(pod, container) is not None:
        run = run["lastState"]["terminated"]
    return run.get("containerID") or ""


def _statuses(pod: Json) -> Iterator[Json]:
    for kind in _KINDS:
        yield from pod.get("status", {}).get(f"{kind}Statuses") or ()
