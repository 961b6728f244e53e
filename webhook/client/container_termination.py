"""Functions that wait until the kubelet has written a container's exit code.

The kubelet may write the pod's phase Succeeded before the terminated states of its containers. If a
pod ends without its kubelet (pod garbage collection, a lost node), the states are never written.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from webhook.client.container_state import (
    FINAL_PHASES,
    NeverTerminatedError,
    NotAPodError,
    PodDeletedError,
    PodName,
    WaitTimeoutError,
    choose_container,
    container_status,
    may_restart,
    pod_phase,
    previous_terminated_state,
    succeeded_implies_zero,
    terminated_state,
)
from webhook.client.pod_watch import PodWatch, watch_pod
from webhook.client.retry import Backoff, NotYetError, StreamSettings
from webhook.cluster.client import ApiServer
from webhook.core.types import Json


@dataclass(frozen=True, slots=True)
class Termination:
    """The end of a container's last run."""

    container: str
    exit_code: int
    reason: str
    """The kubelet's reason, such as `Completed`, `Error` or `OOMKilled`. `PodDeleted` means that
    the pod was deleted in phase Succeeded before its last update with the container's state."""
    finished_at: str | None
    """The kubelet's time in RFC 3339, or None if it is not known."""


async def wait_terminated(
    server: ApiServer,
    name: PodName,
    container: str | None = None,
    backoff: Backoff = Backoff(),  # noqa: B008 (it is frozen)
    settings: StreamSettings = StreamSettings(),  # noqa: B008 (it is frozen)
    timeout_seconds: float | None = None,
) -> Termination:
    """Wait until a container has ended, and return its termination.

    `timeout_seconds` is the limit, and 0 means one look at the pod. None means no limit.

    If the kubelet may restart the container, this waits until the pod has ended and returns the
    termination of the last run. A later call for the same pod returns the same termination.

    If the pod has ended (Succeeded or Failed) without a terminated state, this requests the state
    again with `backoff`. If the pod is deleted and its last phase was Succeeded, the exit code of a
    regular or init container is 0, because the phase implies it. The phase does not imply the exit
    code of a native sidecar or an ephemeral container, so this raises PodDeletedError for them.

    Raises PodNotFoundError, ContainerError, PodDeletedError, NeverTerminatedError, and
    WaitTimeoutError after `timeout_seconds`. Raises ApiError if the API server refuses a request.
    Raises Unreachable if the API server is still unreachable when `backoff` is spent.
    """
    if timeout_seconds is not None:
        backoff = replace(backoff, total=min(backoff.total, timeout_seconds))
    async with watch_pod(server, name, backoff, settings) as watch:
        container_name = choose_container(watch.pod, container)
        try:
            # The limit cannot pass before the first look at the pod, which waits for nothing.
            async with asyncio.timeout(timeout_seconds):
                return await _wait(watch, container_name, backoff)
        except TimeoutError:
            message = _no_state_message(watch, container_name)
            raise WaitTimeoutError(message) from None


async def _wait(watch: PodWatch, container: str, backoff: Backoff) -> Termination:
    async def read_termination() -> Termination:
        await watch.refresh()
        termination = _find_termination(watch, container)
        if termination is None:
            raise NotYetError(_no_state_message(watch, container))
        return termination

    while True:
        termination = _find_termination(watch, container)
        if termination is not None:
            return termination
        if pod_phase(watch.pod) in FINAL_PHASES:
            try:
                return await backoff(read_termination, watch.wait_for_change)
            except NotYetError:
                last = previous_terminated_state(watch.pod, container)
                if last is None:
                    message = _no_state_message(watch, container)
                    raise NeverTerminatedError(message) from None
                return _parse_terminated(container, last)
        watch.log_waiting_reason(container)
        await watch.wait_for_change()


def _find_termination(watch: PodWatch, container: str) -> Termination | None:
    """Return the container's termination, or None if it is not known yet.

    Raises PodDeletedError if the pod was deleted, so its termination stays unknown.
    """
    state = terminated_state(watch.pod, container)
    if state is not None:
        pod_ended = watch.has_final_state or pod_phase(watch.pod) in FINAL_PHASES
        # The kubelet restarts no container of a pod that is being deleted.
        pod_ended |= watch.deleted and "deletionTimestamp" in watch.pod["metadata"]
        termination = _parse_terminated(container, state)
        if pod_ended or not may_restart(watch.pod, container, termination.exit_code):
            return termination
    if not watch.deleted:
        return None
    last_phase = pod_phase(watch.pod)
    if last_phase == "Succeeded" and succeeded_implies_zero(watch.pod, container):
        return Termination(container, 0, "PodDeleted", None)
    if state is not None:
        raise PodDeletedError(
            f"{watch.name} was deleted, and its container {container} may have been started again "
            f"after the exit code {state['exitCode']} that was last seen"
        )
    raise PodDeletedError(
        f"{watch.name} was deleted before its container {container} was seen to end; "
        f"its phase was {last_phase}"
    )


def _parse_terminated(container: str, state: Json) -> Termination:
    """Convert a terminated state. Raise NotAPodError if it has no exit code that is a number."""
    code = state.get("exitCode")
    if not isinstance(code, int) or isinstance(code, bool):
        found = "has no exitCode" if code is None else f"has the exitCode {code!r}"
        raise NotAPodError(f"container {container}: its terminated state {found}")
    reason, finished_at = state.get("reason"), state.get("finishedAt")
    return Termination(
        container,
        code,
        reason if isinstance(reason, str) else "",
        finished_at if isinstance(finished_at, str) else None,
    )


def _no_state_message(watch: PodWatch, container: str) -> str:
    state = ", ".join(container_status(watch.pod, container).get("state") or ()) or "unknown"
    return (
        f"{watch.name} is {pod_phase(watch.pod)}, and its container {container} has no terminated "
        f"state; its state is {state}"
    )
