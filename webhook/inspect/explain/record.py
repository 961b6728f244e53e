"""The record of a pod: podsettle's annotations, and what its containers and fields show of them.

Any user may have written the annotations, so their text is bounded and never trusted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import reduce
from typing import Any

import msgspec

from webhook.core.admission.apply_plan import parse_applied, skipped_remedies, unknown_remedies
from webhook.core.admission.summary import parse_skipped
from webhook.core.constants import (
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
_CHANGED = "podsettle changed this pod when it was created"
UNTOUCHED = "podsettle did not change this pod."
"""The sentence on a pod without a sign of podsettle."""


class Record:
    """What a pod says of podsettle. `sentence` is what podsettle did to it."""

    def __init__(self, pod: Pod) -> None:
        spec = pod.spec
        self._annotations, self._spec = pod.annotations or {}, spec
        kinds = (True, spec.init_containers), (False, spec.containers)
        self.containers = [(init, each) for init, found in kinds for each in found or ()]
        """The containers as they start, each with whether it is an init container."""
        self.summary = self._text(ANNOTATION_SUMMARY)
        self.skipped = parse_skipped(self._text(ANNOTATION_SKIPPED))
        self.applied = parse_applied(self._annotations)
        self.remedies = dict.fromkeys(remedy for _, remedy in self.applied)
        known = [REMEDIES[name] for name in self.remedies if name in REMEDIES]
        self.unshown = [remedy.name for remedy in known if not self._shows(remedy)]
        """The applied remedies of which the pod shows no sign. Annotations can be copied."""
        self.is_empty = not (
            self.applied or self.skipped or self.summary or self._text(ANNOTATION_SETTLED)
        )
        self.doubt = self._doubt()
        """Why the annotations cannot be trusted, with what they say. Empty if they can."""
        sentences = (
            (self.applied, f"{_CHANGED}."),
            (self.skipped, "podsettle did not change this pod, although a policy asked for it."),
            (self.is_empty, UNTOUCHED),
            (True, "podsettle's annotations on this pod name no remedy."),
        )
        self.sentence = self.doubt or next(each for holds, each in sentences if holds)

    def fields(self, name: str) -> list[str]:
        """Return the fields and annotations that a remedy may have set, as `PATH: VALUE`."""
        remedy = REMEDIES.get(name)
        if remedy is None:
            return []
        # Containers can be large, and these fields are not in them.
        spec = msgspec.structs.replace(self._spec, containers=None, init_containers=None)
        document: Any = {"spec": msgspec.json.decode(msgspec.json.encode(spec))}
        keys = remedy.annotations
        found: dict[str, Any] = {f"annotation {x}": self._annotations.get(x) for x in keys}
        for path in remedy.fields:
            steps = path.strip("/").split("/")
            found[".".join(steps)] = reduce(lambda x, step: (x or {}).get(step), steps, document)
        return [
            f"{key}: {value if isinstance(value, str) else json.dumps(value)}"
            for key, value in sorted(found.items())
            if value is not None
        ]

    def changes(self, container: Container) -> list[str]:
        """Return what podsettle changed in a container, in sentences."""
        if container.name == HELPER:
            return ["podsettle added this container. It copies its helper into the pod, and ends."]
        signs = [
            remedy.container_sign(container)
            for remedy in REMEDIES.values()
            if remedy.name in self.remedies or remedy.is_traceable
        ]
        sentences = list(filter(None, signs))
        return sentences[-1:] if container.name in OWN_CONTAINERS else sentences

    def notes(self) -> Iterator[str]:
        """Yield what the annotation ANNOTATION_SKIP does, and what contradicts the annotations."""
        skipped = skipped_remedies(self._annotations)
        if skipped == {"true"}:
            yield f"The pod's annotation {ANNOTATION_SKIP} excludes every remedy."
        else:
            if known := [name for name in REMEDIES if name in skipped]:
                yield f"The pod's annotation {ANNOTATION_SKIP} excludes {', '.join(known)}."
            yield from (f"{each.reason}: {each.message}." for each in unknown_remedies(skipped))
        spec, settled = self._spec, self._text(ANNOTATION_SETTLED)
        lists = (spec.containers, spec.init_containers, spec.volumes)
        # The fourth number is that of labels, which may change.
        if settled and settled.split("/")[:3] != [str(len(each or ())) for each in lists]:
            yield (
                "The pod has other containers or volumes than podsettle has recorded. Another "
                "webhook has changed the pod after podsettle, or podsettle's annotations were "
                "copied from another pod."
            )

    def _text(self, key: str) -> str:
        return self._annotations.get(key, "")[:_MAX_ANNOTATION_CHARACTERS]

    def _is_in_containers(self, remedy: Remedy[Any]) -> bool:
        return any(remedy.container_sign(container) for _, container in self.containers)

    def _shows(self, remedy: Remedy[Any]) -> bool:
        # A RuntimeClass alone is no sign of a remedy that sets annotations too.
        lacks_annotations = remedy.annotations and remedy.annotations.isdisjoint(self._annotations)
        has_fields = not lacks_annotations and bool(self.fields(remedy.name))
        return has_fields or self._is_in_containers(remedy)

    def _doubt(self) -> str:
        say = f"The annotations say that {_CHANGED}"
        if self.unshown:
            names = ", ".join(self.unshown)
            return f"{say}, but the pod shows no sign of {names}. They may be those of another pod."
        if not self.remedies.keys() <= REMEDIES.keys():
            return f"{say}. This version of podsettle does not know all of the remedies."
        traceable = (each for each in REMEDIES.values() if each.is_traceable)
        if not self.applied and any(map(self._is_in_containers, traceable)):
            return "This pod has podsettle's changes, but not its annotations (it may be a copy)."
        return ""
