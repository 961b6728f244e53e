"""The CPU time of a decision without HTTP, by stage."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path
from time import process_time
from typing import Any

import msgspec
import orjson

from bench import cluster_manifests, reviews
from bench.cpu_pinning import choose_cores, pinned_to
from bench.errors import BenchError
from bench.interleave import interleave
from bench.measurement import Measurement
from bench.report_table import ReportTable
from bench.run import Run
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.core.admission.apply_plan import apply_plan
from webhook.core.admission.cache import DecisionCache
from webhook.core.admission.decider import Decider, OperatorSettings
from webhook.core.admission.decision import Decision
from webhook.core.admission.handler import admit
from webhook.core.admission.response import encode_patch, encode_review
from webhook.core.admission.review import REVIEW_API_VERSION, Request, decode_review
from webhook.core.cluster.view import ClusterFacts
from webhook.core.decision_input import DecisionInput, facts_of, namespace_facts_of
from webhook.core.images import Images
from webhook.core.patch.builder import PodPatch
from webhook.core.policy.plan import Plan
from webhook.core.policy.snapshot import Snapshot
from webhook.core.remedies.base import Context
from webhook.process_memory import tune_memory_for_server

NAME = "core"
# A pass takes only milliseconds, so this part runs more rounds than other parts.
_ROUNDS_FACTOR = 4
CACHED = "one template: decision from the cache, bytes to bytes"
UNCACHED = "no two alike: decision without a cache, bytes to bytes"
MISS = "no two alike: cache miss, bytes to bytes"
ORJSON = "for comparison: orjson.loads of the review"
JSON = "for comparison: json.loads of the review"
_SETTINGS = OperatorSettings(None, "registry.example/linger:1")


def measure(run: Run) -> ReportTable:
    """Measure every stage, and for comparison two JSON parsers with the same bytes."""
    part = ReportTable(NAME, "The core without HTTP, one 8 KB review")
    run.log_progress("core: stages")
    view = _view(cluster_manifests.copy_examples(run.directory / "core"))
    times = _measure_times(run, view)
    decide, self_check = times["decide"], times["verify"].minus(times["operations"])
    stages = {
        "decode": times["decode"],
        "match": times["match"],
        "facts": times["facts"],
        "cache key": times["cache key"],
        CACHED: times[CACHED],
        "remedies and patch": decide.minus(self_check),
        "patch self-check": self_check,
        "encode patch": times["encode patch"],
        "encode the other parts of the answer": times["encode"],
        UNCACHED: times[UNCACHED],
        MISS: times[MISS],
        ORJSON: times[ORJSON],
        JSON: times[JSON],
    }
    part.rows = {name: {"time": figure} for name, figure in stages.items()}
    part.notes += [
        "The figures are CPU times of one process. Each figure of a round is the average over the "
        "reviews. The stages 'remedies and patch' and 'patch self-check' are differences of "
        f"measured times. Each stage is measured on {reviews.VARIANTS} pods, so their memory stays "
        "in the processor's caches.",
        "'One template': podsettle looks up the decision on the first pod for the others. 'No two "
        f"alike': the pods are of {reviews.DISTINCT_TEMPLATES:,} templates, in turn. podsettle "
        "decides on each pod and checks the patch.",
        "'Cache miss': each look-up fails, and each decision is put into a full cache, which "
        "evicts another one.",
    ]
    return part


def _measure_times(run: Run, view: Snapshot) -> dict[str, Measurement]:
    """Return the CPU time of each measured function, in microseconds per review."""
    tune_memory_for_server()
    cluster = ClusterFacts(
        view.nodes,
        view.runtime_classes,
        view.server_version,
        _SETTINGS.linger_image,
        _SETTINGS.linger_version,
        _SETTINGS.docs_url,
    )

    def match(request: Request[Any]) -> Plan:
        namespace = view.namespace(request.namespace or "")
        assert namespace is not None
        plan = view.policies.coverage_for(namespace, None).group.plan(request.pod.labels or {})
        assert plan is not None
        return plan

    def facts(request: Request[Any]) -> DecisionInput:
        namespace = namespace_facts_of(request.namespace or "", fixed_selinux_level=False)
        return DecisionInput(facts_of(request.pod), namespace)

    def patch_of(decision_input: DecisionInput) -> PodPatch:
        patch = PodPatch(decision_input.pod)
        context = Context(cluster, decision_input.namespace, Images())
        for step in plan.mutating:
            for _ in step.remedy.apply(decision_input.pod, step.settings, context, patch):
                pass
        return patch

    def encode(decision: Decision) -> bytes:
        made = Decision(decision.outcomes, patch=decision.patch)
        return encode_review(REVIEW_API_VERSION, "", made.patch, made.texts.texts_json)

    def answer(body: bytes, decider: Decider) -> Decision:
        return admit(body, decider, view).decision

    unlike, alike = reviews.distinct_templates(), reviews.variants(reviews.tekton())
    no_cache = Decider(_SETTINGS)
    warm_cache, full_cache = (Decider(_SETTINGS, DecisionCache()) for _ in range(2))
    require_misses(lambda body: answer(body, full_cache), unlike)
    few = unlike[: reviews.VARIANTS]
    requests = [decode_review(body).request for body in few]
    inputs = [facts(request) for request in requests]
    plan = match(requests[0])
    patches = [patch_of(decision_input) for decision_input in inputs]
    functions: dict[str, tuple[Callable[[Any], object], Sequence[object]]] = {
        "decode": (lambda body: decode_review(body).request.pod, few),
        "match": (match, requests),
        "facts": (facts, requests),
        "cache key": (msgspec.json.encode, inputs),
        "decide": (lambda decision_input: apply_plan(decision_input, plan, cluster), inputs),
        "operations": (PodPatch.operations, patches),
        "verify": (lambda patch: patch.verified_operations(plan.settable_fields), patches),
        "encode patch": (encode_patch, [patch.operations() for patch in patches]),
        "encode": (encode, [answer(body, no_cache) for body in few]),
        CACHED: (lambda body: answer(body, warm_cache), alike),
        UNCACHED: (lambda body: answer(body, no_cache), unlike),
        MISS: (lambda body: answer(body, full_cache), unlike),
        ORJSON: (orjson.loads, alike),
        JSON: (json.loads, alike),
    }
    # Each round continues where the previous one has ended, so that every look-up in the full cache
    # fails in all rounds.
    arguments = {name: cycle(values) for name, (_, values) in functions.items()}

    def time(name: str) -> float:
        calls = islice(arguments[name], run.profile.passes * reviews.VARIANTS)
        return _microseconds(functions[name][0], list(calls))

    measurements: dict[str, Callable[[], float]] = {
        name: lambda name=name: time(name)  # type: ignore[misc]
        for name in functions
    }
    with pinned_to(choose_cores().server):
        results = interleave(measurements, run.profile.rounds * _ROUNDS_FACTOR, warm_up=time)
    return {name: Measurement(tuple(values), "µs") for name, values in results.items()}


def require_misses(decide: Callable[[bytes], Decision], bodies: Sequence[bytes]) -> None:
    """Decide twice on the bodies, in turn. Raise BenchError unless each decision was newly made.

    It also raises BenchError if a decision has no patch. The cache is full afterwards.
    """
    first = [decide(body) for body in bodies]
    again = [decide(body) for body in bodies]
    hits = sum(old is new for old, new in zip(first, again, strict=True))
    unpatched = sum(not decision.patch for decision in first)
    if hits or unpatched:
        raise BenchError(
            f"of {len(bodies):,} pods without a template in common, {hits} were found in the cache "
            f"and {unpatched} were not patched"
        )


def _microseconds(function: Callable[[Any], object], arguments: Sequence[Any]) -> float:
    """Return the CPU time of one call in microseconds, the average over all calls."""
    start = process_time()
    for argument in arguments:
        function(argument)
    return (process_time() - start) / len(arguments) * 1e6


def _view(manifests: Path) -> Snapshot:
    source = ManifestsSource(manifests)
    source.refresh()
    return source.view
