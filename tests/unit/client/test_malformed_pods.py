"""Malformed pods, as another server may answer them: each ends in an error of the pod."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest

from webhook.client import ApiServer, PodName, copy_logs, wait_terminated
from webhook.client.container_state import NotAPodError, PodError
from webhook.client.retry import Backoff

ONCE = Backoff(total=0)
NAME = PodName("ci", "p")
TERMINATED = {"exitCode": 3, "reason": "Error", "finishedAt": "x", "containerID": "c://1"}
POD: Any = {
    "kind": "Pod",
    "metadata": {"name": "p", "uid": "u", "resourceVersion": "1", "deletionTimestamp": "x"},
    "spec": {
        "restartPolicy": "OnFailure",
        "containers": [
            {
                "name": "step",
                "restartPolicy": "Never",
                "restartPolicyRules": [{"exitCodes": {"operator": "In", "values": [255]}}],
            }
        ],
        "initContainers": [{"name": "prepare"}],
        "ephemeralContainers": [{"name": "debug"}],
    },
    "status": {
        "phase": "Running",
        "initContainerStatuses": [{"name": "prepare", "state": {"terminated": TERMINATED}}],
        "containerStatuses": [
            {
                "name": "step",
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                "lastState": {"terminated": TERMINATED},
                "containerID": "c://1",
            }
        ],
    },
}
VALUES: tuple[object, ...] = (None, True, 7, "x", [], {}, [7], [{}], [None], {"x": 7})
ABSENT = object()


class OneAnswer:
    """An API server that gives one answer to each request for the pod, and an empty log."""

    def __init__(self, answer: object) -> None:
        self._answer = answer
        self._log = b""

    async def request(self, *_arguments: Any, **_options: Any) -> object:
        return copy.deepcopy(self._answer)

    @asynccontextmanager
    async def watch(self, *_arguments: Any) -> AsyncIterator[AsyncIterator[bytes]]:
        yield self._lines()

    async def _lines(self) -> AsyncIterator[bytes]:
        yield json.dumps({"type": "DELETED", "object": self._answer}).encode()

    async def stream(self, *_arguments: Any) -> AsyncGenerator[bytes]:
        if self._log:
            yield self._log


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    yield path
    steps = value.items() if isinstance(value, dict) else ()
    for step, inner in enumerate(value) if isinstance(value, list) else steps:
        yield from places(inner, (*path, step))


def changed(path: tuple[str | int, ...], value: object) -> Any:
    """Return the pod with another value at a path, or without it."""
    if not path:
        return value if value is not ABSENT else {}
    document = copy.deepcopy(POD)
    *outer, last = path
    found = document
    for step in outer:
        found = found[step]
    if value is ABSENT:
        del found[last]
    else:
        found[last] = value
    return document


async def wait(server: ApiServer, container: str | None) -> None:
    await wait_terminated(server, NAME, container, ONCE)


async def logs(server: ApiServer, container: str | None) -> None:
    await copy_logs(server, NAME, bytes, container, backoff=ONCE)


async def previous_logs(server: ApiServer, container: str | None) -> None:
    await copy_logs(server, NAME, bytes, container, previous=True, backoff=ONCE)


async def followed_logs(server: ApiServer, container: str | None) -> None:
    await copy_logs(server, NAME, bytes, container, follow=True, backoff=ONCE)


@pytest.mark.parametrize("command", [wait, logs, previous_logs, followed_logs])
@pytest.mark.parametrize("path", [*places(POD)], ids=lambda path: ".".join(map(str, path)) or "pod")
async def test_pod_with_any_value_in_any_field_ends_in_a_result_or_an_error_of_the_pod(
    path: tuple[str | int, ...], command: Any
) -> None:
    for value in (ABSENT, *VALUES):
        for container in (None, "step", "prepare"):
            server = cast(ApiServer, OneAnswer(changed(path, value)))
            with suppress(PodError):
                async with asyncio.timeout(30):
                    await command(server, container)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({}, ""),
        ({"message": "moved"}, ""),
        (POD | {"status": 7}, ": Expected `object | null`, got `int` - at `$.status`"),
    ],
)
async def test_answer_that_is_not_a_pod_is_named(answer: object, said: str) -> None:
    with pytest.raises(NotAPodError) as error:
        await wait(cast(ApiServer, OneAnswer(answer)), None)
    assert str(error.value) == f"pod ci/p: the answer is not a Pod{said}"
