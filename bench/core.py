"""The decision alone, without HTTP: microseconds of processor time by stage."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import process_time

import orjson

from bench import cluster_manifests, reviews
from bench.cpu_pinning import choose_cores, pinned_to
from bench.interleave import interleave
from bench.measurement import Measurement
from bench.report_table import ReportTable
from bench.run import Run
from webhook.cluster.manifest_source import ManifestsSource
from webhook.cluster.snapshot import Snapshot
from webhook.core.admission.cache import Memory
from webhook.core.admission.decide import Settings, decide
from webhook.core.admission.handler import admit
from webhook.core.admission.review import decode_review
from webhook.core.patch.builder import PodPatch

NAME = "core"
_ROUNDS_FACTOR = 4
"""A pass takes milliseconds: many rounds cost little."""
WHOLE = "the decision: bytes to bytes"
UNLIKE = "the decision, on a pod like no other"
FIRST = "the decision, of a patch of a new shape"
YARDSTICK = "yardstick: orjson.loads of the review"
_SETTINGS = Settings(None, "registry.example/linger:1")


def measure(run: Run) -> ReportTable:
    """Every stage, beside what a JSON parser needs for the same bytes."""
    part = ReportTable(NAME, "The core alone, one 8 KB review")
    run.log_progress("core: stages")
    bodies = reviews.variants(reviews.tekton())
    view = _view(cluster_manifests.copy_examples(run.directory / "core"))
    found = _timed(run, bodies, view)
    decode, matched = found["decode"], found["match"]
    decided, unchecked = found["decide"], found["decide, unchecked"]
    whole, unlike = found[WHOLE], found[UNLIKE]
    stages = {
        "decode": decode,
        "match": matched,
        "look up, and answer": whole.minus(decode).minus(matched),
        WHOLE: whole,
        "remedies": unchecked.minus(matched),
        "self-check of a known shape": decided.minus(unchecked),
        "encode": unlike.minus(decode).minus(decided),
        UNLIKE: unlike,
        FIRST: found[FIRST],
        YARDSTICK: found["orjson"],
        "yardstick: json.loads of the review": found["json"],
    }
    part.rows = {name: {"time": figure} for name, figure in stages.items()}
    part.notes += [
        "Processor time of this process, one figure per round from all reviews in turn. All but "
        "decode and match, and what is named a decision, are differences of such figures.",
        "The reviews are of pods of one template: the decision on the first of them is looked up "
        "for the others, with its self-check. On a pod like no other it is made: remedies, "
        "self-check and encode come on top.",
        "A patch's shape is new the first time that it touches a pod's fields in that way.",
    ]
    return part


def _timed(run: Run, bodies: list[bytes], view: Snapshot) -> dict[str, Measurement]:
    requests = [decode_review(body).request for body in bodies]
    memory = Memory()
    for body in bodies:
        answer = admit(body, view.policies, view, _SETTINGS, memory=memory)
        assert answer.decision.operations, answer.decision

    def match(number: int) -> object:
        request = requests[number]
        namespace = view.namespace(request.namespace or "")
        assert namespace is not None
        pod = request.pod
        return view.policies.coverage_for(namespace, None).group.plan(pod.labels or {})

    def unlike(number: int) -> object:
        return admit(bodies[number], view.policies, view, _SETTINGS, memory=Memory(memory.proofs))

    def first(number: int) -> object:
        return admit(bodies[number], view.policies, view, _SETTINGS, memory=Memory())

    def decide_uncached(number: int) -> object:
        return decide(
            requests[number], view.policies, view, _SETTINGS, memory=memory, reusable=False
        )

    work: dict[str, Callable[[int], object]] = {
        "decode": lambda number: decode_review(bodies[number]).request.pod,
        "match": match,
        "decide": decide_uncached,
        "decide, unchecked": decide_uncached,
        WHOLE: lambda number: admit(bodies[number], view.policies, view, _SETTINGS, memory=memory),
        UNLIKE: unlike,
        FIRST: first,
        "orjson": lambda number: orjson.loads(bodies[number]),
        "json": lambda number: json.loads(bodies[number]),
    }

    def turn(name: str) -> float:
        if name != "decide, unchecked":
            return _microseconds(work[name], len(bodies), run.profile.passes)
        with _without_self_check():
            return _microseconds(work[name], len(bodies), run.profile.passes)

    turns: dict[str, Callable[[], float]] = {
        name: lambda name=name: turn(name)  # type: ignore[misc]
        for name in work
    }
    with pinned_to(choose_cores().server):
        found = interleave(turns, run.profile.rounds * _ROUNDS_FACTOR, warm_up=turn)
    return {name: Measurement(tuple(values), "µs") for name, values in found.items()}


def _microseconds(work: Callable[[int], object], count: int, passes: int) -> float:
    start = process_time()
    for _ in range(passes):
        for number in range(count):
            work(number)
    return (process_time() - start) / passes / count * 1e6


@contextmanager
def _without_self_check() -> Iterator[None]:
    checked = PodPatch.checked_operations
    PodPatch.checked_operations = lambda self, proofs: self.operations()  # type: ignore[method-assign]  # noqa: ARG005
    try:
        yield
    finally:
        PodPatch.checked_operations = checked  # type: ignore[method-assign]


def _view(manifests: Path) -> Snapshot:
    source = ManifestsSource(manifests)
    source.refresh()
    return source.view
