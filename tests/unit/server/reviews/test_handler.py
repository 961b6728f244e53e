"""The handler of reviews: what it answers, counts and logs, at once and after look-ups."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from time import monotonic
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client import generate_latest

from tests.support.examples import examples
from tests.support.factories import SETTINGS, container, namespace, pod, policy, view
from tests.support.image_factories import image_policy
from tests.support.reviews import review
from tests.support.strategies import JUNK, PODS, VIEWS
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.core.admission.decider import Decider
from webhook.core.admission.handler import Answer, admit
from webhook.core.policy.snapshot import Snapshot
from webhook.server.drain import Drain
from webhook.server.limits import DEFAULT_LIMITS, Limits
from webhook.server.metrics import Metrics
from webhook.server.reviews.body import MemoryBudget, ReviewBody
from webhook.server.reviews.handler import ReviewHandler, ReviewTiming
from webhook.server.reviews.log import ReviewLog
from webhook.server.reviews.request import Refusal

QUICK = pod(containers=[container("main", "/x")], restartPolicy="Never")
UNKNOWN_IMAGE = pod(
    containers=[container("main", image="registry.example/a:1")], restartPolicy="Never"
)
SLEEPING = policy("sleep", remedies={"postInitSleep": {"containers": ["*"]}})
LOOKING_UP = policy("look-up", **image_policy("registry.example"))
KNOWN = [namespace("ci")]


class Handling:
    """A handler with its counters, on an event loop of its own."""

    def __init__(self, source: ManifestsSource, runner: asyncio.Runner) -> None:
        self.source = source
        self.budget = MemoryBudget()
        self.drain = Drain(idle_seconds=10, timeout_seconds=45)
        self._metrics = Metrics("test")
        self._runner = runner
        self._review_log = ReviewLog()
        self._handler = ReviewHandler(
            source,
            SETTINGS,
            metrics=self._metrics,
            review_log=self._review_log,
            drain=self.drain,
            budget=self.budget,
            limits=Limits(body_timeout_seconds=2.0),
        )

    def answer(
        self,
        *pieces: bytes,
        complete: bool = True,
        queued_seconds: float = 0.0,
        deadline_seconds: float = 7.0,
        arriving_seconds: float = 0.0,
    ) -> Answer | Refusal:
        """Return the answer to a body, after the look-ups that it needs."""
        received_at = monotonic() - queued_seconds
        timing = ReviewTiming(received_at - arriving_seconds, received_at, deadline_seconds)

        async def answer() -> Answer | Refusal:
            if len(pieces) == 1 and complete:
                found = self._handler.answer(pieces[0], timing)
            else:
                body = ReviewBody(self.budget, self._handler.limits)
                for number, piece in enumerate(pieces, 1):
                    body.feed(piece, is_last=complete and number == len(pieces))
                found = self._handler.answer_body(body, timing)
                body.release()
            if isinstance(found, Answer) and found.missing:
                self.looked_up += 1
                return await self._handler.look_up(found, timing, "10.0.0.1")
            return found

        self.looked_up = 0
        result = self._runner.run(answer())
        assert self.drain.last_review_at == received_at
        return result

    def response(self, *pieces: bytes, **options: Any) -> dict[str, Any]:
        answer = self.answer(*pieces, **options)
        assert isinstance(answer, Answer)
        response: dict[str, Any] = json.loads(answer.body)["response"]
        assert response["allowed"] is True
        return response

    def flush(self) -> None:
        """Write the lines of the log that wait."""
        self._review_log.flush()

    @property
    def counts(self) -> dict[str, float]:
        """The counters of reviews, without the sum of their durations."""
        lines = generate_latest(self._metrics.registry).decode().splitlines()
        pairs = [line.rpartition(" ") for line in lines if line.startswith("podsettle_")]
        return {
            name: float(value)
            for name, _, value in pairs
            if "_bucket" not in name and "_sum" not in name
        }


@pytest.fixture(scope="module")
def handling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Handling]:
    with asyncio.Runner() as runner:
        yield Handling(ManifestsSource(tmp_path_factory.mktemp("manifests")), runner)


def review_of(document: Any) -> bytes:
    return json.dumps(review({}, namespace="ci", object=document)).encode()


def grown(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    return {
        name: after[name] - before.get(name, 0) for name in after if before.get(name) != after[name]
    }


@examples(200)
@given(document=st.one_of(PODS, PODS, PODS, JUNK), seen=VIEWS)
@example(document=QUICK, seen=view(SLEEPING, namespaces=KNOWN))
def test_whole_review_and_one_in_pieces_get_the_answer_of_the_core(
    handling: Handling, document: Any, seen: Snapshot
) -> None:
    handling.source.view = seen
    body = review_of(document)
    counts = [handling.counts]
    whole = handling.answer(body)
    counts.append(handling.counts)
    in_pieces = handling.answer(body[:50], body[50:])
    counts.append(handling.counts)
    assert isinstance(whole, Answer)
    assert isinstance(in_pieces, Answer)
    assert whole.body == in_pieces.body == admit(body, Decider(SETTINGS), seen).body
    assert grown(*counts[:2]) == grown(*counts[1:])


@pytest.mark.parametrize(
    ("document", "seen"),
    [
        (UNKNOWN_IMAGE, view(LOOKING_UP, namespaces=KNOWN)),
        (QUICK, replace(view(SLEEPING), invents_namespaces=False)),
    ],
    ids=["image", "namespace"],
)
def test_review_that_needs_a_look_up_is_counted_once(
    handling: Handling, document: Any, seen: Snapshot
) -> None:
    handling.source.view = seen
    before = handling.counts
    handling.response(review_of(document))
    assert handling.looked_up == 1
    assert grown(before, handling.counts)["podsettle_review_duration_seconds_count"] == 1


@pytest.mark.parametrize("body", [b"", b"{", b"{}", b"\xff"])
def test_body_without_a_review_is_refused_with_the_status_of_its_defect(
    handling: Handling, body: bytes
) -> None:
    before = handling.counts
    refused = handling.answer(body)
    assert isinstance(refused, Refusal)
    assert refused.status == 400
    assert refused.text.startswith("not an AdmissionReview: ")
    late = handling.answer(body, complete=False)
    assert late == Refusal(408, f"only {len(body)} bytes of the review arrived within 2 s")
    assert grown(before, handling.counts) == {}  # The caller counts what it refuses.


def test_incomplete_review_is_allowed_unchanged(handling: Handling) -> None:
    handling.source.view = view(SLEEPING, namespaces=KNOWN)
    body = review_of(QUICK)
    response = handling.response(body[:-10], complete=False)
    assert "patch" not in response
    assert "podsettle: DeadlineExceeded: " in response["warnings"][0]
    assert response["auditAnnotations"] == {"skipped": "DeadlineExceeded"}
    assert "patch" in handling.response(body[:-10], body[-10:])


@pytest.mark.parametrize(("length", "decided"), [(256 * 1024, True), (256 * 1024 + 1, False)])
def test_exhausted_memory_leaves_incomplete_and_long_reviews_unchanged(
    handling: Handling, length: int, decided: bool
) -> None:
    handling.source.view = view(SLEEPING, namespaces=KNOWN)
    body = review_of(QUICK).ljust(length)
    limit = handling.budget.limit_bytes
    handling.budget.limit_bytes = 0
    try:
        incomplete = handling.response(body[:-100], complete=False)
        whole = handling.response(body[:-100], body[-100:])
    finally:
        handling.budget.limit_bytes = limit
    assert "podsettle: Overloaded: other reviews and answers" in incomplete["warnings"][0]
    assert ("patch" in whole) is decided
    assert decided or "podsettle: Overloaded: " in whole["warnings"][0]
    assert handling.budget.used_bytes == 0


def test_review_above_the_maximum_length_is_left_unchanged(handling: Handling) -> None:
    handling.source.view = view(SLEEPING, namespaces=KNOWN)
    body = review_of(QUICK).ljust(DEFAULT_LIMITS.max_review_bytes)
    assert "patch" in handling.response(body[:9], body[9:])
    response = handling.response(body, b" ")
    assert "UnsupportedReview: the review has 4194305 bytes" in response["warnings"][0]


@pytest.mark.parametrize(
    ("queued_seconds", "deadline_seconds", "is_shed"),
    [(0.8, 7.0, False), (1.1, 7.0, True), (0.2, 1.4, False), (0.4, 1.4, True), (1.1, 21, True)],
)
def test_review_that_was_queued_for_too_long_is_shed(
    handling: Handling, queued_seconds: float, deadline_seconds: float, is_shed: bool
) -> None:
    """At most a quarter of its deadline, and at most one second."""
    handling.source.view = view(SLEEPING, namespaces=KNOWN)
    options: dict[str, Any] = {
        "queued_seconds": queued_seconds,
        "deadline_seconds": deadline_seconds,
    }
    response = handling.response(review_of(QUICK), **options)
    assert ("patch" in response) is not is_shed
    if is_shed:
        times = f"{queued_seconds:g} s of the {deadline_seconds:g} s"
        text = f"podsettle: Overloaded: this review waited {times} that its timeout leaves"
        assert text in response["warnings"][0]
    refused = handling.answer(b"{}", **options)
    assert isinstance(refused, Refusal)
    assert refused.status == 400


START = {"waitFor": [{"dns": "a.b"}]}
FULL = pod(container("a", "/a"), annotations={"theirs": "x" * (256 * 1024 - 10)})
UNEVALUATED: dict[str, tuple[Any, str]] = {
    "too many containers": (pod(*(container(f"a{n}", "/a") for n in range(501))), "PodTooLarge"),
    "too many values": (pod(containers=[{}] * 50_001), "PodTooLarge"),
    "too long with its patch": (pod(container("a", "/a"), x="y" * 1_310_500), "PodTooLarge"),
    "full annotations": (FULL, "AnnotationsFull"),
    "a field of another type": (pod(hostNetwork="yes"), "MalformedPod"),
    "a field of another type that is decoded late": (pod(tolerations=5), "MalformedPod"),
    "an object that is no pod": ({"metadata": {"name": "p"}, "spec": []}, "MalformedPod"),
    "a mirror pod": (pod(annotations={"kubernetes.io/config.mirror": "x"}), "MirrorPod"),
    "a Windows pod": (pod(os={"name": "windows"}), "WindowsPod"),
}
"""Covered pods that are left as they are before a policy is applied, and the reason."""


@pytest.mark.parametrize(("arriving", "allowed"), [(0, 4.2), (2, 4.2), (5, 2), (8, 0)])
def test_image_look_ups_end_at_the_deadline_however_long_the_review_took_to_arrive(
    handling: Handling, monkeypatch: pytest.MonkeyPatch, arriving: float, allowed: float
) -> None:
    times: list[float] = []

    class Images:
        async def find(self, _missing: object, seconds: float) -> dict[Any, Any]:
            times.append(seconds)
            return {}

    monkeypatch.setattr(handling._handler, "_images", Images())
    monkeypatch.setattr("webhook.server.reviews.handler.monotonic", lambda: 1000.0)
    monkeypatch.setitem(globals(), "monotonic", lambda: 1000.0)
    handling.source.view = view(LOOKING_UP, namespaces=KNOWN)
    handling.response(review_of(UNKNOWN_IMAGE), arriving_seconds=arriving)
    assert times == [pytest.approx(allowed)]


def lines_about(
    handling: Handling, caplog: pytest.LogCaptureFixture, document: Any, seen: Snapshot
) -> list[str]:
    """Return the lines of the log about a review."""
    caplog.set_level("INFO", "webhook.server.reviews.log")
    handling.source.view = seen
    caplog.clear()
    handling.answer(review_of(document))
    handling.flush()
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("case", UNEVALUATED)
def test_covered_pod_that_is_left_unevaluated_has_a_line_with_the_reason(
    handling: Handling, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    document, reason = UNEVALUATED[case]
    gated = policy(remedies={"kubeletGate": {}, "postInitSleep": {}, "startGate": START})
    (line,) = lines_about(handling, caplog, document, view(gated, namespaces=KNOWN))
    assert line.endswith(f" pod ci/p: skipped: {reason}")
    assert lines_about(handling, caplog, document, view(namespaces=KNOWN)) == []


def test_pod_that_policies_may_cover_has_a_line_with_the_reason(
    handling: Handling, caplog: pytest.LogCaptureFixture
) -> None:
    asking = namespace("ci", {"podsettle.dev/policy": "missing"})
    unknown = replace(view(SLEEPING), invents_namespaces=False)
    for seen, reason in (
        (view(namespaces=[asking]), "PolicyNotFound"),
        (unknown, "NamespaceUnknown"),
    ):
        (line,) = lines_about(handling, caplog, pod(), seen)
        assert line.endswith(f" pod ci/p: skipped: {reason}")


def test_internal_error_has_a_line_with_the_name_of_the_pod(
    handling: Handling, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webhook.core.admission.decider.facts_of", lambda _: 1 // 0)
    (line,) = lines_about(handling, caplog, pod(), view(SLEEPING, namespaces=KNOWN))
    assert line.endswith(" pod ci/p)")


@pytest.mark.parametrize(
    ("document", "count"),
    [(UNEVALUATED["too many containers"][0], 0), (pod(tolerations=5), 0),
     (pod(tolerations=5, labels={"a": "b"}), 1), (pod(hostNetwork="yes"), 1),
     (pod(labels={"a": "b"}, annotations={"podsettle.dev/skip": "true"}), 0)],
    ids=["many containers", "malformed", "malformed and selected", "labels that cannot be read",
         "opted out"],
)  # fmt: skip
def test_pod_that_no_policy_selects_or_that_has_opted_out_has_no_line(
    handling: Handling, caplog: pytest.LogCaptureFixture, document: Any, count: int
) -> None:
    selecting = policy(remedies={"startGate": START}, podSelector={"matchLabels": {"a": "b"}})
    lines = lines_about(handling, caplog, document, view(selecting, namespaces=KNOWN))
    assert len(lines) == count


@pytest.mark.parametrize("name", [5, None, ["p"], "x\ny"])
def test_name_that_cannot_be_read_or_printed_is_no_obstacle(
    handling: Handling, caplog: pytest.LogCaptureFixture, name: Any
) -> None:
    document = {"metadata": {"name": name}, "spec": []}
    (line,) = lines_about(handling, caplog, document, view(SLEEPING, namespaces=KNOWN))
    assert "skipped: MalformedPod" in line
    assert line.isprintable()
