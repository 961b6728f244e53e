"""Waits for a container's exit code, until the kubelet has written it.

The kubelet may write the pod's phase Succeeded before the terminated states of its containers. If a
pod ends without its kubelet (pod garbage collection, a lost node), the states are never written.
"""

from __future__ import annotations

from dataclasses import dataclass

from webhook.client.pod import (
    FINAL,
    Json,
    NeverTerminatedError,
    NotAPodError,
    PodDeletedError,
    PodName,
    choose_container,
    last_terminated,
    may_restart,
    phase,
    status,
    succeeded_implies_zero,
    terminated,
)
from webhook.client.pod_watch import PodWatch, watch_pod
from webhook.client.retry import Backoff, NotYetError, StreamSettings
from webhook.cluster.client import ApiServer


@dataclass(frozen=True, slots=True)
class Termination:
    """The end of a container's last run."""

    container: str
    exit_code: int
    reason: str
    """The kubelet's reason, such as `Completed`, `Error` or `OOMKilled`. `PodDeleted` means that
    the pod was deleted in phase Succeeded before the container's state was seen."""
    finished_at: str | None


async def wait_terminated(
    server: ApiServer,
    name: PodName,
    container: str | None = None,
    backoff: Backoff = Backoff(),  # noqa: B008 (it is frozen)
    settings: StreamSettings = StreamSettings(),  # noqa: B008 (it is frozen)
) -> Termination:
    """Wait without a limit until a container has ended, and return its termination.

    If the kubelet may restart the container, this waits until the pod has ended and returns the
    last run. The result does not depend on when the caller asks.

    Once the pod has ended (Succeeded or Failed), the terminated state is requested with `backoff`.
    If the pod was Succeeded when it was last seen and is then deleted, the exit code of a regular
    or init container is 0, because the phase implies it. The phase implies nothing about a native
    sidecar or an ephemeral container: these raise PodDeletedError.

    Raises PodNotFoundError, ContainerError, PodDeletedError and NeverTerminatedError. Raises
    ApiError if the API server refuses a request, and Unreachable if it cannot be reached until
    `backoff` is spent.
    """
    async with watch_pod(server, name, backoff, settings) as watch:
        chosen = choose_container(watch.pod, container)

        async def read_termination() -> Termination:
            await watch.refresh()
            termination = _termination(watch, chosen)
            if termination is None:
                raise NotYetError(_no_state_message(watch, chosen))
            return termination

        while True:
            termination = _termination(watch, chosen)
            if termination is not None:
                return termination
            if phase(watch.pod) in FINAL:
                try:
                    return await backoff(read_termination, watch.change)
                except NotYetError:
                    last = last_terminated(watch.pod, chosen)
                    if last is None:
                        message = _no_state_message(watch, chosen)
                        raise NeverTerminatedError(message) from None
                    return _parse(chosen, last)
            watch.log_waiting_reason(chosen)
            await watch.change()


def _termination(watch: PodWatch, container: str) -> Termination | None:
    """Return the container's termination, or None if it is not known yet.

    Raises PodDeletedError if it can no longer become known.
    """
    state = terminated(watch.pod, container)
    if state is not None:
        pod_ended = watch.has_final_state or phase(watch.pod) in FINAL
        # The kubelet restarts nothing in a pod that is being deleted.
        pod_ended |= watch.deleted and "deletionTimestamp" in watch.pod["metadata"]
        termination = _parse(container, state)
        if pod_ended or not may_restart(watch.pod, container, termination.exit_code):
            return termination
    if not watch.deleted:
        return None
    last_phase = phase(watch.pod)
    if last_phase == "Succeeded" and succeeded_implies_zero(watch.pod, container):
        return Termination(container, 0, "PodDeleted", None)
    if state is not None:
        raise PodDeletedError(
            f"{watch.name} was deleted, and its container {container} may have been started again "
            f"after the exit code {state.get('exitCode', 0)} that was last seen"
        )
    raise PodDeletedError(
        f"{watch.name} was deleted before its container {container} was seen to end; "
        f"its phase was {last_phase}"
    )


def _parse(container: str, state: Json) -> Termination:
    """Return the termination in a terminated state. Raises NotAPodError if it is malformed."""
    code = state.get("exitCode", 0)
    if not isinstance(code, int):
        raise NotAPodError(f"container {container}: {code!r} is not an exit code")
    return Termination(
        container,
        code,
        state.get("reason") or "",
        state.get("finishedAt"),
    )


def _no_state_message(watch: PodWatch, container: str) -> str:
    state = ", ".join(status(watch.pod, container).get("state") or ()) or "unknown"
    return (
        f"{watch.name} is {phase(watch.pod)}, and its container {container} has no terminated "
        f"state; its state is {state}"
    )
