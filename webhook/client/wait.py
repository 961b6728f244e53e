"""Waiting for a container's exit code until it is really there.

The kubelet may say of a pod that it has succeeded before it says how its containers ended, and what
ends a pod without the kubelet (pod garbage collection, a lost node) never says it.
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
    ended_well_if_succeeded,
    last_terminated,
    may_restart,
    phase,
    status,
    terminated,
)
from webhook.client.pod_watch import Sight, keep_in_sight
from webhook.client.retry import Backoff, NotYetError
from webhook.cluster.client import ApiServer


@dataclass(frozen=True, slots=True)
class Ended:
    """How a container ended."""

    container: str
    exit_code: int
    reason: str
    """The kubelet's word, such as `Completed`, `Error` or `OOMKilled`; `PodDeleted` where the pod
    was deleted after its phase was Succeeded and before the container's state was seen."""
    finished_at: str | None


async def wait_terminated(
    server: ApiServer,
    name: PodName,
    container: str | None = None,
    backoff: Backoff = Backoff(),  # noqa: B008 (it is frozen)
) -> Ended:
    """How the container ended, once it has. Waits for a running container without limit.

    Of a container that the kubelet may start again, this is how its last run ended, once the pod is
    over: whoever looks a moment later is told the same.

    Once the pod is over (Succeeded or Failed), the terminated state is asked for by `backoff`. In a
    pod that was Succeeded when it was last seen, and is then deleted, a regular or init container
    counts as exit code 0, which the phase implies. It implies nothing of the exit code of a native
    sidecar or an ephemeral container: PodDeletedError.

    Raises PodNotFoundError, ContainerError, PodDeletedError and NeverTerminatedError; ApiError and
    Unreachable where the API server refuses, or cannot be reached for as long as `backoff` lasts.
    """
    async with keep_in_sight(server, name, backoff) as sight:
        chosen = choose_container(sight.pod, container)

        async def settled() -> Ended:
            await sight.refresh()
            ended = _ended(sight, chosen)
            if ended is None:
                raise NotYetError(_nothing_yet(sight, chosen))
            return ended

        while True:
            ended = _ended(sight, chosen)
            if ended is not None:
                return ended
            if phase(sight.pod) in FINAL:
                try:
                    return await backoff(settled, sight.change)
                except NotYetError:
                    last = last_terminated(sight.pod, chosen)
                    if last is None:
                        raise NeverTerminatedError(_nothing_yet(sight, chosen)) from None
                    return _read(chosen, last)
            sight.say_why(chosen)
            await sight.change()


def _ended(sight: Sight, container: str) -> Ended | None:
    """How the container ended, or None where that is not known yet.

    Raises PodDeletedError where it can no longer become known.
    """
    state = terminated(sight.pod, container)
    if state is not None:
        over = sight.has_final_state or phase(sight.pod) in FINAL
        # The kubelet starts nothing again in a pod that is being deleted.
        over |= sight.gone and "deletionTimestamp" in sight.pod["metadata"]
        ended = _read(container, state)
        if over or not may_restart(sight.pod, container, ended.exit_code):
            return ended
    if not sight.gone:
        return None
    last_phase = phase(sight.pod)
    if last_phase == "Succeeded" and ended_well_if_succeeded(sight.pod, container):
        return Ended(container, 0, "PodDeleted", None)
    if state is not None:
        raise PodDeletedError(
            f"{sight.name} was deleted, and its container {container} may have been started again "
            f"after the exit code {state.get('exitCode', 0)} that was last seen"
        )
    raise PodDeletedError(
        f"{sight.name} was deleted before its container {container} was seen to end; "
        f"its phase was {last_phase}"
    )


def _read(container: str, state: Json) -> Ended:
    code = state.get("exitCode", 0)
    if not isinstance(code, int):
        raise NotAPodError(f"container {container}: {code!r} is not an exit code")
    return Ended(
        container,
        code,
        state.get("reason") or "",
        state.get("finishedAt"),
    )


def _nothing_yet(sight: Sight, container: str) -> str:
    state = ", ".join(status(sight.pod, container).get("state") or ()) or "unknown"
    return (
        f"{sight.name} is {phase(sight.pod)}, and its container {container} has no terminated "
        f"state; its state is {state}"
    )
