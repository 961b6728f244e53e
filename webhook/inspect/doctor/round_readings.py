"""What the checks of one round read: the installation, its pods, and the view of the cluster."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import msgspec

from webhook.cluster.client import ApiServer
from webhook.cluster.errors import Unreachable, status_message
from webhook.cluster.reader import ClusterReader
from webhook.cluster.rights import Right
from webhook.cluster.unread import NotAllowedError
from webhook.cluster.view_reader import ReadView, read_view
from webhook.core.images import ImageResolver
from webhook.core.pod import DECODE_ERRORS
from webhook.core.types import Json
from webhook.inspect.doctor.model import State
from webhook.inspect.installation import Installation
from webhook.inspect.webhook_configurations_api import CONFIGURATION_GROUP, CONFIGURATIONS_RESOURCE

NewImageResolver: TypeAlias = Callable[[ApiServer], ImageResolver]
"""Returns a resolver that reads pull secrets of this cluster. The caller closes it."""

_MAX_PROBED_PODS = 20
"""The maximum number of replicas that are asked. The chart's autoscaler starts at most 10."""
_PROBE_TIMEOUT_SECONDS = 5.0
_MAX_ANSWER_BYTES = 1024 * 1024
_DEFAULT_PORT = 8443
_LINE = re.compile(r"\[(?P<mark>[-+!])\](?P<name>policies in force|\S+) (?P<note>.*)")


class ReadinessLine(NamedTuple):
    """A line of /readyz?verbose."""

    mark: str
    """`+` if the check passes, `!` if it passes with a note, `-` if it fails."""
    name: str
    note: str


class Probe(NamedTuple):
    """The answers of one replica, asked through the API server."""

    pod: str
    lines: tuple[ReadinessLine, ...] = ()
    version: Mapping[str, Any] = MappingProxyType({})
    problem: str = ""
    """Why the replica gave no answer. Empty if it gave one."""


class Installed:
    """An installation and what was read of it. Use a new one for each round of checks."""

    def __init__(
        self,
        server: ApiServer,
        installation: Installation,
        new_image_resolver: NewImageResolver,
        chosen_namespace: str | None = None,
    ) -> None:
        """`chosen_namespace` is the namespace for the dry run and for the pull of the helper."""
        self.server = server
        self.installation = installation
        self.chosen_namespace = chosen_namespace
        self.new_image_resolver = new_image_resolver
        self.reader = ClusterReader(server)
        self.states: dict[str, list[State]] = {}
        """The states of the checks that have run, by name."""
        self._view: ReadView | None = None
        self._probes: tuple[Probe, ...] | NotAllowedError | None = None

    def has_fault(self, check: str) -> bool:
        """Return whether an earlier check found a fault."""
        return State.FAULT in self.states.get(check, ())

    async def view(self) -> ReadView:
        """Return the policies, namespaces, RuntimeClasses and nodes of the cluster."""
        if self._view is None:
            chosen = (self.chosen_namespace,) if self.chosen_namespace else ()
            self._view = await read_view(self.server, namespaces=chosen)
        return self._view

    async def require(self, *kinds: str) -> ReadView:
        """Return the view. Raises NotAllowedError if one of these kinds could not be read."""
        view = await self.view()
        for unread in view.unread:
            if unread.resource in kinds:
                raise NotAllowedError(unread.right)
        return view

    async def configuration(self) -> Json | None:
        """Return the MutatingWebhookConfiguration, or None if it does not exist."""
        name = self.installation.configuration
        right = Right("get", CONFIGURATION_GROUP, CONFIGURATIONS_RESOURCE, name=name)
        return await self.reader.get(right)

    async def pods(self) -> list[Json]:
        """Return the pods of the Deployment, except those that end or have ended."""
        labels = ",".join(f"{key}%3D{value}" for key, value in self.installation.pod_labels.items())
        right = Right("list", "", "pods", self.installation.namespace)
        return [
            pod
            for pod in await self.reader.list(right, f"labelSelector={labels}")
            if "deletionTimestamp" not in pod["metadata"]
            and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        ]

    async def probes(self) -> tuple[Probe, ...]:
        """Return the answers of the replicas. Raises NotAllowedError."""
        if self._probes is None:
            pods = (await self.pods())[:_MAX_PROBED_PODS]
            try:
                self._probes = tuple(await asyncio.gather(*(self._probe(pod) for pod in pods)))
            except NotAllowedError as error:
                self._probes = error
        if isinstance(self._probes, NotAllowedError):
            raise self._probes
        return self._probes

    async def server_time(self) -> datetime:
        """Return the time of the API server. Raises Unreachable.

        The clocks of the API servers decide whether a certificate has expired, not the clock of
        this machine.
        """
        answer = await self.server.fetch("GET", "/version")
        if answer.server_time is None:
            raise Unreachable("the API server does not say its time (header Date)")
        return answer.server_time

    async def _probe(self, pod: Json) -> Probe:
        """Ask one replica for its checks and its version."""
        name = pod["metadata"]["name"]
        target = f"https:{name}:{_port(pod)}"
        namespace = self.installation.namespace
        root = f"/api/v1/namespaces/{namespace}/pods/{target}/proxy"
        try:
            readyz, version = await asyncio.gather(
                self._fetch(f"{root}/readyz?verbose"), self._fetch(f"{root}/version")
            )
        except Unreachable as error:
            return Probe(name, problem=str(error))
        for answer in (readyz, version):
            if answer.status == 403:
                raise NotAllowedError(Right("get", "", "pods", namespace, name, "proxy"))
        lines = parse_readiness(readyz.content.decode(errors="replace"))
        if not lines:
            return Probe(name, problem=status_message(readyz.content))
        return Probe(name, lines, _decode_object(version.content))

    async def _fetch(self, path: str) -> Any:
        return await self.server.fetch(
            "GET", path, timeout=_PROBE_TIMEOUT_SECONDS, max_bytes=_MAX_ANSWER_BYTES
        )


def parse_readiness(text: str) -> tuple[ReadinessLine, ...]:
    """Return the lines of /readyz?verbose. The result is empty for another text."""
    matches = (_LINE.fullmatch(line) for line in text.splitlines())
    return tuple(
        ReadinessLine(match["mark"], match["name"], match["note"]) for match in matches if match
    )


def is_ready(pod: Json) -> bool:
    """Return whether the kubelet says that a pod is ready."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def lines_of(probes: tuple[Probe, ...], name: str) -> list[tuple[str, ReadinessLine]]:
    """Return the lines of one readiness check, each with the name of its replica."""
    return [(probe.pod, line) for probe in probes for line in probe.lines if line.name == name]


def _port(pod: Json) -> int:
    for container in pod["spec"].get("containers") or ():
        for port in container.get("ports") or ():
            if port.get("name") == "https":
                number: int = port["containerPort"]
                return number
    return _DEFAULT_PORT


def _decode_object(content: bytes) -> Json:
    try:
        found = msgspec.json.decode(content)
    except DECODE_ERRORS:
        return {}
    return dict(found) if isinstance(found, Mapping) else {}
