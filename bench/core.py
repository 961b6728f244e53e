"""The CPU time of a decision without HTTP, by stage."""

from __future__ import annotations

import json
from collections.abc import Callable
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
from webhook.core.admission.cache import DecisionCache
from webhook.core.admission.decide import OperatorSettings, decide
from webhook.core.admission.handler import admit
from webhook.core.admission.review import decode_review

NAME = "core"
# A pass takes only milliseconds, so this part runs more rounds than other parts.
_ROUNDS_FACTOR = 4
CACHED = "decision from the cache, bytes to bytes"
UNCACHED = "decision without the cache, bytes to bytes"
ORJSON = "for comparison: orjson.loads of the review"
JSON = "for comparison: json.loads of the review"
_SETTINGS = OperatorSettings(None, "registry.example/linger:1")


def measure(run: Run) -> ReportTable:
    """Measure every stage, and for comparison two JSON parsers with the same bytes."""
    part = ReportTable(NAME, "The core without HTTP, one 8 KB review")
    run.log_progress("core: stages")
    bodies = reviews.variants(reviews.tekton())
    view = _view(cluster_manifests.copy_examples(run.directory / "core"))
    times = _measure_times(run, bodies, view)
    decode, match = times["decode"], times["match"]
    cached, uncached = times[CACHED], times[UNCACHED]
    stages = {
        "decode": decode,
        "match": match,
        "cache lookup and response": cached.minus(decode).minus(match),
        CACHED: cached,
        "remedies and patch self-check": times["decide"].minus(match),
        "encode": uncached.minus(decode).minus(times["decide"]),
        UNCACHED: uncached,
        ORJSON: times[ORJSON],
        JSON: times[JSON],
    }
    part.rows = {name: {"time": figure} for name, figure in stages.items()}
    part.notes += [
        "The figures are CPU times of one process. Each figure of a round is the average over all "
        "reviews. Decode, match and the decisions are measured. The other stages are differences "
        "of measured times.",
        "The pods are of one template. With the cache, podsettle looks up the decision on the "
        "first pod for the others. Without the cache, remedies, self-check and encode come on top.",
    ]
    return part


def _measure_times(run: Run, bodies: list[bytes], view: Snapshot) -> dict[str, Measurement]:
    """Return the CPU time of each measured function, in microseconds per review."""
    requests = [decode_review(body).request for body in bodies]
    cache = DecisionCache()
    for body in bodies:
        answer = admit(body, view.policies, view, _SETTINGS, cache=cache)
        assert answer.decision.operations, answer.decision

    def match(number: int) -> object:
        request = requests[number]
        namespace = view.namespace(request.namespace or "")
        assert namespace is not None
        pod = request.pod
        return view.policies.coverage_for(namespace, None).group.plan(pod.labels or {})

    def decide_uncached(number: int) -> object:
        return decide(requests[number], view.policies, view, _SETTINGS)

    functions: dict[str, Callable[[int], object]] = {
        "decode": lambda number: decode_review(bodies[number]).request.pod,
        "match": match,
        "decide": decide_uncached,
        CACHED: lambda number: admit(bodies[number], view.policies, view, _SETTINGS, cache=cache),
        UNCACHED: lambda number: admit(bodies[number], view.policies, view, _SETTINGS),
        ORJSON: lambda number: orjson.loads(bodies[number]),
        JSON: lambda number: json.loads(bodies[number]),
    }

    def time(name: str) -> float:
        return _microseconds(functions[name], len(bodies), run.profile.passes)

    measurements: dict[str, Callable[[], float]] = {
        name: lambda name=name: time(name)  # type: ignore[misc]
        for name in functions
    }
    with pinned_to(choose_cores().server):
        results = interleave(measurements, run.profile.rounds * _ROUNDS_FACTOR, warm_up=time)
    return {name: Measurement(tuple(values), "µs") for name, values in results.items()}


def _microseconds(function: Callable[[int], object], count: int, passes: int) -> float:
    """Return the CPU time of one call in microseconds, the average over all calls."""
    start = process_time()
    for _ in range(passes):
        for number in range(count):
            function(number)
    return (process_time() - start) / passes / count * 1e6


def _view(manifests: Path) -> Snapshot:
    source = ManifestsSource(manifests)
    source.refresh()
    return source.view
