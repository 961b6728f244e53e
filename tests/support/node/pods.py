"""What a pod of a real node shows: its wrapped commands, and how its containers end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tests.support.kube.cluster import Json
from webhook.core.constants import HELPER_PATH
from webhook.core.remedies.shell_wrapper import is_wrapped


class Ending(NamedTuple):
    """What is known of a container after its end."""

    exit_code: int
    reason: str
    message: str
    log: tuple[str, ...]
    """The lines of both streams, sorted: the order between the streams is not defined."""


def pod_path(namespace: str, name: str = "") -> str:
    """Return the path of a pod, or of all pods of a namespace, in the API."""
    return f"/api/v1/namespaces/{namespace}/pods/{name}".rstrip("/")


def states(pod: Json) -> dict[str, Json]:
    """Return the states of all containers by their names."""
    status = pod["status"]
    every = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    return {each["name"]: each["state"] for each in every}


def exit_codes(pod: Json) -> dict[str, int]:
    """Return the exit codes of the containers that have ended."""
    return {
        name: state["terminated"]["exitCode"]
        for name, state in states(pod).items()
        if "terminated" in state
    }


def all_ended(pod: Json) -> bool:
    """Whether all containers of a pod have ended. Its phase may precede the last one's state."""
    status = pod["status"]
    return status.get("phase") in ("Succeeded", "Failed") and not any(
        "running" in each["state"] for each in status.get("containerStatuses", ())
    )


def ending(pod: Json, container: str, log: str) -> Ending:
    """Return how a container with this log has ended."""
    ended = states(pod)[container]["terminated"]
    return Ending(
        ended["exitCode"], ended["reason"], ended.get("message", ""), tuple(sorted(log.split("\n")))
    )


def commands(pod: Json) -> Mapping[str, list[str]]:
    """Return the commands of all containers by their names."""
    spec = pod["spec"]
    every = [*spec.get("initContainers", ()), *spec["containers"]]
    return {each["name"]: each.get("command", []) for each in every}


def wrapper_of(command: list[str]) -> str:
    """Return what wraps a command: `Shell`, `helper`, or the empty string."""
    if is_wrapped(command):
        return "Shell"
    return "helper" if command[:1] == [HELPER_PATH] else ""
