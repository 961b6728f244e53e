"""Which configuration and which pod let CRI-O skip the relabelling.

Before each start, one nested file of a volume gets a wrong label. It stays wrong if CRI-O skips the
volume, and is repaired if CRI-O visits each file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.node.selinux_node import DEFAULT_HANDLER, FILE_TYPE, WRONG_TYPE, CrioNode, Start
from bench.node.selinux_pods import LEVEL, OTHER_LEVEL, settled, start_request, volume_pod
from tests.support.node_config import CRIO as NODE_CONFIG
from tests.support.node_config import printed, selinux_drop_in
from tools.crio import NEW_SPELLING
from webhook.core.constants import SKIP_RELABEL_ANNOTATIONS

Json = dict[str, Any]

SKIPS, WALKS = "skips", "visits each file"
NO_START = "CRI-O does not start"
NO_HANDLER = "failed to find runtime handler"
VOLUME = "small"
_OLD, _NEW = SKIP_RELABEL_ANNOTATIONS

# Names of pods, as the table shows them.
UNSETTLED = "not settled"
SETTLED = "settled"
WITHOUT_CLASS = "settled by a policy without a class"
CLASS_ALONE = "settled by `runtimeClass` alone"
ON_CONTAINER = "the class, and the annotation on the container alone"
MISSPELT = "settled, both annotations misspelt"
OLD_MISSPELT = "settled, the old spelling misspelt"
NEW_MISSPELT = "settled, the new spelling misspelt"
CAPITAL = "settled, the value `True`"
ANOTHER_LEVEL = "settled, another level"
NO_LEVEL = "settled, no level"


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration of CRI-O, and what it does to pods."""

    name: str
    options: tuple[str, ...] | None
    """Of `podsettle node-config crio --selinux`. None is a node without the drop-in."""
    expected: Mapping[str, str]
    """The outcome for each pod."""
    allows_annotation: bool = True
    """Without it, the line `allowed_annotations` is removed from the drop-in."""

    def drop_in(self) -> str:
        """Return the text of the drop-in, or nothing."""
        if self.options is None:
            return ""
        text = selinux_drop_in(DEFAULT_HANDLER, *self.options)
        lines = text.splitlines(keepends=True)
        return "".join(
            line for line in lines if self.allows_annotation or "allowed_annotations" not in line
        )


def configurations(release: str) -> tuple[Configuration, ...]:
    """Return all configurations, with what a release of CRI-O is expected to do."""
    is_new = release == NEW_SPELLING
    newer_handler = SKIPS if is_new else NO_HANDLER
    return (
        Configuration(
            "no drop-in",
            None,
            {UNSETTLED: WALKS, SETTLED: NO_HANDLER, WITHOUT_CLASS: WALKS},
        ),
        Configuration(
            "`--mode handler`",
            (),
            {
                UNSETTLED: WALKS,
                SETTLED: SKIPS,
                WITHOUT_CLASS: WALKS,
                CLASS_ALONE: WALKS,
                ON_CONTAINER: WALKS,
                MISSPELT: WALKS,
                OLD_MISSPELT: WALKS,
                NEW_MISSPELT: SKIPS,
                CAPITAL: WALKS,
                ANOTHER_LEVEL: WALKS,
                NO_LEVEL: WALKS,
            },
        ),
        Configuration("`--mode handler`, annotation not allowed", (), {SETTLED: WALKS}, False),
        Configuration("`--oldest 1.30.0`", ("--oldest", "1.30.0"), {SETTLED: SKIPS}),
        Configuration("`--oldest 1.33.0`", ("--oldest", "1.33.0"), {SETTLED: SKIPS}),
        Configuration(
            "`--oldest 1.35.0`",
            ("--oldest", "1.35.0"),
            {SETTLED: newer_handler, OLD_MISSPELT: newer_handler},
        ),
        Configuration(
            "`--mode workload`",
            ("--mode", "workload"),
            {UNSETTLED: WALKS, WITHOUT_CLASS: SKIPS},
        ),
        Configuration(
            "`--mode workload --oldest 1.35.0`",
            ("--mode", "workload", "--oldest", "1.35.0"),
            {WITHOUT_CLASS: SKIPS if is_new else NO_START},
        ),
        Configuration(
            "`--mode default-annotations --oldest 1.33.0`",
            ("--mode", "default-annotations", "--oldest", "1.33.0"),
            {UNSETTLED: WALKS, CLASS_ALONE: SKIPS},
        ),
        Configuration(
            "`--mode default-annotations --oldest 1.35.0`",
            ("--mode", "default-annotations", "--oldest", "1.35.0"),
            {CLASS_ALONE: SKIPS},
        ),
    )


class Requests:
    """The requests of all pods, settled by podsettle."""

    def __init__(self, directory: Path) -> None:
        """`directory` is for the files of `podsettle preview`."""
        self._directory = directory
        self._class: Json = yaml.safe_load(printed(*NODE_CONFIG, "-o", "runtimeclass"))
        name = self._class["metadata"]["name"]
        self._remedies: Json = {"skipSELinuxRelabel": {"runtimeClassName": name}}
        self._class_alone: Json = {"runtimeClass": {"name": name}}

    def settled(self, pod: Json, remedies: Json | None = None) -> Json:
        """Return a pod as podsettle admits it."""
        return settled(pod, remedies or self._remedies, self._class, self._directory)

    def of(self, pod: Json, container_annotations: Mapping[str, str] | None = None) -> Json:
        """Return the request that starts an admitted pod."""
        handlers = {self._class["metadata"]["name"]: self._class["handler"]}
        return start_request(pod, handlers, container_annotations)

    def named(self, name: str, volume: str, *, level: str = LEVEL) -> Json:
        """Return the request that starts a pod of one of the names above."""
        level = {ANOTHER_LEVEL: OTHER_LEVEL, NO_LEVEL: ""}.get(name, level)
        pod = volume_pod(volume, level=level)
        if name == UNSETTLED:
            return self.of(pod)
        if name == WITHOUT_CLASS:
            return self.of(self.settled(pod, {"skipSELinuxRelabel": {}}))
        if name in (CLASS_ALONE, ON_CONTAINER):
            on_container = {_OLD: "true"} if name == ON_CONTAINER else {}
            return self.of(self.settled(pod, self._class_alone), on_container)
        pod = self.settled(pod)
        annotations = pod["metadata"]["annotations"]
        misspelt = {MISSPELT: (_OLD, _NEW), OLD_MISSPELT: (_OLD,), NEW_MISSPELT: (_NEW,)}
        for key in misspelt.get(name, ()):
            annotations[f"{key}s"] = annotations.pop(key)
        if name == CAPITAL:
            annotations |= {_OLD: "True", _NEW: "True"}
        return self.of(pod)


@dataclass(frozen=True, slots=True)
class Case:
    """A configuration and a pod, with what happened and what was expected."""

    configuration: str
    pod: str
    release: str
    outcome: str
    expected: str


def run_cases(node: CrioNode, releases: Sequence[str], directory: Path) -> Iterator[Case]:
    """Start each pod under each configuration of each release."""
    requests = Requests(directory)
    for release in releases:
        for configuration in configurations(release):
            answer = node.restart(release, configuration.drop_in())
            runs = answer == f"cri-o {release.removeprefix('v')}"
            for pod, expected in configuration.expected.items():
                outcome = _outcome(node, requests.named(pod, VOLUME)) if runs else NO_START
                yield Case(configuration.name, pod, release, outcome, expected)


def _outcome(node: CrioNode, request: Json) -> str:
    node.label(VOLUME, LEVEL)
    node.mislabel(VOLUME)
    return outcome_of(node.start(request, VOLUME))


def outcome_of(start: Start) -> str:
    """Return what CRI-O did to a volume with a wrong label in it, as the table shows it."""
    if start.error:
        return NO_HANDLER if NO_HANDLER in start.error else start.error
    nested = start.nested_label.split(":")[2]
    if nested == WRONG_TYPE and start.written == 0:
        return SKIPS
    if nested == FILE_TYPE and start.written > 0:
        return WALKS
    return f"{start.written} labels written, the nested file has {start.nested_label}"
