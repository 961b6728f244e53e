"""What a pod's document says about one of its containers."""

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
        """Of the pod on the API server."""
        return f"/api/v1/namespaces/{quote(self.namespace, '')}/pods/{quote(self.name, '')}"


class PodError(Exception):
    """Something about the pod that no patience will change."""


class PodNotFoundError(PodError):
    """There was no such pod when it was first asked for."""


class PodDeletedError(PodError):
    """The pod went away before what was waited for had come."""


class ContainerError(PodError):
    """No such container; or several, and none was named."""


class NotAPodError(PodError):
    """Whatever answers, it is no API server: its answer is not a Pod."""


class NotStartedError(PodError):
    """The container has not run yet, and nobody wanted to wait for it."""


class GaveUpError(PodError):
    """The back-off was spent, and what was asked for had not come."""


class NeverTerminatedError(GaveUpError):
    """The pod is over, and its container's terminated state did not come."""


def check_pod(found: object, name: PodName) -> None:
    """Raise NotAPodError for a document that is none: a proxy answers with what it likes."""
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
    """The container that was named, else the only regular one. Raises ContainerError."""
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
    """The pod's phase; a pod that nobody has said anything of yet is Pending."""
    return pod.get("status", {}).get("phase") or "Pending"


def status(pod: Json, container: str) -> Json:
    """The container's status; empty before the kubelet has written one.

    By name: the kubelet sorts the list, so the first one may be of an injected container.
    """
    return next((found for found in _statuses(pod) if found["name"] == container), {})


def terminated(pod: Json, container: str) -> Json | None:
    """The terminated state that the container is in now."""
    found: Json | None = (status(pod, container).get("state") or {}).get("terminated")
    return found


def may_restart(pod: Json, container: str, exit_code: int) -> bool:
    """Whether the kubelet may start a container anew that ended so, while the pod is not over.

    `ContainerShouldRestart` in kubernetes `pkg/api/v1/pod`, and for init containers
    `computeInitContainerActions` in `pkg/kubelet/kuberuntime`.
    """
    kind, spec = _find(pod, container)
    if kind == "ephemeralContainer":
        return False
    if any(_covers(rule, exit_code) for rule in spec.get("restartPolicyRules") or ()):
        return True
    policy = spec.get("restartPolicy")
    if policy is None:
        policy = pod["spec"].get("restartPolicy") or "Always"
        if kind == "initContainer" and policy == "Always":
            policy = "OnFailure"
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def ended_well_if_succeeded(pod: Json, container: str) -> bool:
    """Whether a pod in phase Succeeded means that this container's last exit code was 0.

    True of regular containers, and of init containers, without which those would not have started.
    Of native sidecars the phase says only that they have stopped, of ephemeral containers nothing
    (`getPhase` in kubernetes `pkg/kubelet`).
    """
    kind, spec = _find(pod, container)
    is_sidecar = kind == "initContainer" and spec.get("restartPolicy") == "Always"
    return kind != "ephemeralContainer" and not is_sidecar


def _find(pod: Json, container: str) -> tuple[str, Json]:
    """The kind and the spec of a container that the pod has."""
    return next(
        (kind, found)
        for kind in _KINDS
        for found in pod["spec"].get(f"{kind}s") or ()
        if found["name"] == container
    )


def _covers(rule: Json, exit_code: int) -> bool:
    codes = rule.get("exitCodes") or {}
    return (exit_code in (codes.get("values") or ())) == (codes.get("operator") == "In")


def last_terminated(pod: Json, container: str) -> Json | None:
    """The end of the run before the present one, of a container that waits for its next."""
    found = status(pod, container)
    if "waiting" not in (found.get("state") or {}):
        return None
    last: Json | None = (found.get("lastState") or {}).get("terminated")
    return last


def has_run(pod: Json, container: str) -> bool:
    """Whether there may be a log."""
    state = status(pod, container).get("state") or {}
    return (
        "running" in state
        or "terminated" in state
        or last_terminated(pod, container) is not None
        or phase(pod) in FINAL
    )


def waiting(pod: Json, container: str) -> str:
    """Why the container does not run yet, in the kubelet's words; empty where it does not say."""
    state = (status(pod, container).get("state") or {}).get("waiting") or {}
    return ": ".join(filter(None, (state.get("reason"), state.get("message"))))


def run_id(pod: Json, container: str) -> str:
    """Which run of the container this is: the runtime's ID of it; empty before it has one."""
    found = status(pod, container)
    if last_terminated(pod, container) is not None:
        found = found["lastState"]["terminated"]
    return found.get("containerID") or ""


def _statuses(pod: Json) -> Iterator[Json]:
    for kind in _KINDS:
        yield from pod.get("status", {}).get(f"{kind}Statuses") or ()
