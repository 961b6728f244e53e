"""What a pod alone tells of podsettle: its annotations, its containers and its fields.

Any user may have written the annotations, so their text is bounded and never trusted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from webhook.core.admission.apply_plan import skipped_remedies, unknown_remedies
from webhook.core.admission.summary import Skipped, parse_skipped
from webhook.core.constants import (
    ANNOTATION_APPLIED,
    ANNOTATION_SETTLED,
    ANNOTATION_SKIP,
    ANNOTATION_SKIPPED,
    ANNOTATION_SUMMARY,
    HELPER,
    OWN_CONTAINERS,
)
from webhook.core.pod import Container, Pod
from webhook.core.remedies import REMEDIES
from webhook.core.remedies.base import Remedy

_MAX_ANNOTATION_CHARACTERS = 4_096
"""The maximum length of an annotation that is read. podsettle writes at most 2 KiB."""
_MAX_PAIRS = 100
"""The maximum number of remedies that are read from ANNOTATION_APPLIED."""

_HELPER_SENTENCE = (
    "podsettle added this container. It copies podsettle's helper into the pod, and ends."
)

UNRECORDED = (
    "This pod has podsettle's changes, but not its annotations that name them (it may be a copy)."
)
"""What podsettle did to a pod whose containers alone show it."""


@dataclass(frozen=True, slots=True)
class Record:
    """podsettle's annotations on a pod."""

    summary: str
    applied: tuple[tuple[str, str], ...]
    """The policy and the name of each remedy that was applied."""
    skipped: tuple[Skipped, ...]
    opted_out: str
    """The annotation `podsettle.dev/skip`, which the author of the pod writes."""
    settled: str
    unshown: tuple[str, ...]
    """The applied remedies of which the pod shows no sign. Annotations can be copied or forged."""
    unverifiable: tuple[str, ...]
    """The applied remedies that this version of podsettle does not know."""
    unrecorded: tuple[str, ...]
    """The remedies of which a container shows a sign, although no annotation names them. The pod
    may be a copy without the annotations."""

    @property
    def shown(self) -> frozenset[str]:
        """The remedies of which the pod shows a sign."""
        remedies = {remedy for _, remedy in self.applied}
        remedies.difference_update(self.unshown, self.unverifiable)
        return frozenset(remedies.union(self.unrecorded))

    @property
    def is_empty(self) -> bool:
        """Whether podsettle has written nothing on the pod."""
        return not (self.applied or self.skipped or self.summary or self.settled)


def record_of(pod: Pod) -> Record:
    """Return podsettle's annotations on a pod."""
    annotations = pod.annotations or {}

    def text(key: str) -> str:
        return annotations.get(key, "")[:_MAX_ANNOTATION_CHARACTERS]

    pairs = [part.partition("/") for part in text(ANNOTATION_APPLIED).split(",") if "/" in part]
    applied = tuple((policy, remedy) for policy, _, remedy in pairs[:_MAX_PAIRS])
    remedies = dict.fromkeys(remedy for _, remedy in applied)
    return Record(
        summary=text(ANNOTATION_SUMMARY),
        applied=applied,
        skipped=parse_skipped(text(ANNOTATION_SKIPPED)),
        opted_out=text(ANNOTATION_SKIP).strip(),
        settled=text(ANNOTATION_SETTLED),
        unshown=tuple(
            each for each in remedies if each in REMEDIES and not _shows(pod, REMEDIES[each])
        ),
        unverifiable=tuple(each for each in remedies if each not in REMEDIES),
        unrecorded=tuple(
            name
            for name, remedy in REMEDIES.items()
            if name not in remedies
            and remedy.is_traceable
            and any(map(remedy.container_sign, _containers(pod)))
        ),
    )


def _shows(pod: Pod, remedy: Remedy[Any]) -> bool:
    """Return whether a pod has what a remedy leaves behind."""
    if any(map(remedy.container_sign, _containers(pod))):
        return True
    # A RuntimeClass alone is no sign of a remedy that sets annotations too.
    if remedy.annotations:
        return not remedy.annotations.isdisjoint(pod.annotations or ())
    spec = msgspec.structs.replace(pod.spec, containers=None, init_containers=None)
    document = msgspec.json.decode(msgspec.json.encode(Pod(spec=spec, metadata=pod.metadata)))
    return bool(remedy_fields(document, remedy.name))


def record_notes(record: Record, pod: Pod) -> Iterator[str]:
    """Yield what the annotation ANNOTATION_SKIP does, and what contradicts the annotations."""
    if record.opted_out == "true":
        yield f"The pod's annotation {ANNOTATION_SKIP} excludes every remedy."
    else:
        skipped = skipped_remedies(pod.annotations)
        if known := [name for name in REMEDIES if name in skipped]:
            yield f"The pod's annotation {ANNOTATION_SKIP} excludes {', '.join(known)}."
        yield from (f"{each.reason}: {each.message}." for each in unknown_remedies(skipped))
    if record.settled and _counts(record.settled) != _counts_of(pod):
        yield (
            "The pod has other containers or volumes than podsettle has recorded. Another webhook "
            "has changed the pod after podsettle, or podsettle's annotations were copied from "
            "another pod."
        )
    for remedy in record.unshown:
        yield (
            f"The annotations name {remedy}, but the pod shows no sign of it. The annotations may "
            "have been copied from another pod."
        )


def container_changes(container: Container, record: Record) -> list[str]:
    """Return what podsettle changed in a container, in sentences."""
    if container.name == HELPER:
        return [_HELPER_SENTENCE]
    applied = {remedy for _, remedy in record.applied}
    sentences = [
        sentence
        for name, remedy in REMEDIES.items()
        if (name in applied or remedy.is_traceable)
        and (sentence := remedy.container_sign(container))
    ]
    return sentences[-1:] if container.name in OWN_CONTAINERS else sentences


def remedy_fields(document: Mapping[str, Any], remedy: str) -> list[str]:
    """Return the fields of a pod that a remedy may have set, as `PATH: VALUE`."""
    found = []
    known = REMEDIES.get(remedy)
    for path in sorted(known.fields) if known else ():
        value: Any = document
        for step in path.strip("/").split("/"):
            value = value.get(step) if isinstance(value, Mapping) else None
        if value is not None:
            text = value if isinstance(value, str) else json.dumps(value)
            found.append(f"{path.strip('/').replace('/', '.')}: {text}")
    annotations = (document.get("metadata") or {}).get("annotations") or {}
    found += [
        f"annotation {key}: {annotations[key]}"
        for key in (sorted(known.annotations) if known else ())
        if key in annotations
    ]
    return found


def _containers(pod: Pod) -> Iterator[Container]:
    yield from pod.spec.init_containers or ()
    yield from pod.spec.containers or ()


def _counts(settled: str) -> list[str]:
    """Return the numbers of ANNOTATION_SETTLED, without the number of labels, which may change."""
    return settled.split("/")[:3]


def _counts_of(pod: Pod) -> list[str]:
    spec = pod.spec
    lists = (spec.containers, spec.init_containers, spec.volumes)
    return [str(len(each or ())) for each in lists]
