"""The handler of reviews: the answer at once and the answer after look-ups are the same."""

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
from webhook.core.policy.snapshot import Snapshot
from webhook.server.drain import Drain
from webhook.server.limits import DEFAULT_LIMITS, Limits
from webhook.server.metrics import Metrics
from webhook.server.reviews.body import ReviewBody
from webhook.server.reviews.handler import ReviewHandler, ReviewTiming
from webhook.server.reviews.http_answer import HttpAnswer
from webhook.server.reviews.load_shedding import InFlight, MemoryBudget
from webhook.server.reviews.log import ReviewLog

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
            in_flight=InFlight(),
            budget=self.budget,
            limits=Limits(body_timeout_seconds=2.0),
        )

    def now(self, body: bytes, timeout_seconds: float = 7.0) -> bytes | None:
        async def handle() -> bytes | None:
            return self._handler.handle_now(body, ReviewTiming(monotonic(), timeout_seconds))

        return self._runner.run(handle())

    def later(self, *pieces: bytes, complete: bool = True) -> HttpAnswer:
        async def handle() -> HttpAnswer:
            body = ReviewBody(self.budget)
            for piece in pieces:
                body.feed(piece)
            if complete:
                body.finish()
            answer = await self._handler.handle(body, ReviewTiming(monotonic(), 7.0), "10.0.0.1")
            body.release()
            return answer

        return self._runner.run(handle())

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
def test_answer_at_once_is_the_answer_after_look_ups(
    handling: Handling, document: Any, seen: Snapshot
) -> None:
    handling.source.view = seen
    body = review_of(document)
    counts = [handling.counts]
    at_once = handling.now(body)
    counts.append(handling.counts)
    later = handling.later(body)
    counts.append(handling.counts)
    assert later.status == 200
    assert (later.content_type, later.close) == (b"application/json", False)
    if at_once is None:
        assert counts[0] == counts[1]
    else:
        assert at_once == later.body
        assert grown(*counts[:2]) == grown(*counts[1:])


@pytest.mark.parametrize(
    ("document", "seen"),
    [
        (UNKNOWN_IMAGE, view(LOOKING_UP, namespaces=KNOWN)),
        (QUICK, replace(view(SLEEPING), invents_namespaces=False)),
    ],
    ids=["image", "namespace"],
)
def test_review_that_needs_a_look_up_is_neither_answered_at_once_nor_counted(
    handling: Handling, document: Any, seen: Snapshot
) -> None:
    handling.source.view = seen
    before = handling.counts, handling.drain.reviews
    assert handling.now(review_of(document)) is None
    assert (handling.counts, handling.drain.reviews) == before
    assert handling.later(review_of(document)).status == 200
    assert handling.drain.reviews == before[1] + 1


@pytest.mark.parametrize("body", [b"", b"{", b"{}", b"\xff"])
def test_body_without_a_review_is_refused_with_the_status_of_its_defect(
    handling: Handling, body: bytes
) -> None:
    before = handling.counts
    assert handling.now(body) is None
    assert handling.counts == before
    refused = handling.later(body)
    assert (refused.status, refused.close) == (400, False)
    assert refused.body.startswith(b"not an AdmissionReview: ")
    cut_off = handling.later(body, complete=False)
    assert (cut_off.status, cut_off.close) == (408, True)
    text = f"only {len(body)} bytes of the review arrived within 2 s\n"
    assert cut_off.body == text.encode()
    assert cut_off.content_type == b"text/plain; charset=utf-8"
    assert grown(before, handling.counts) == {
        'podsettle_requests_refused_total{status="400"}': 1,
        'podsettle_requests_refused_total{status="408"}': 1,
    }


def test_incomplete_review_is_allowed_unchanged(handling: Handling) -> None:
    handling.source.view = view(SLEEPING, namespaces=KNOWN)
    body = review_of(QUICK)
    answer = handling.later(body[:-10], complete=False)
    assert (answer.status, answer.close) == (200, False)
    response = json.loads(answer.body)["response"]
    assert "patch" not in response
    assert "podsettle: DeadlineExceeded: " in response["warnings"][0]
    assert "patch" in json.loads(handling.later(body[:-10], body[-10:]).body)["response"]


def test_incomplete_review_above_the_memory_budget_is_allowed_unchanged(
    handling: Handling,
) -> None:
    handling.source.view = view(SLEEPING, namespaces=KNOWN)
    body = review_of(QUICK).ljust(DEFAULT_LIMITS.guaranteed_body_bytes + 100)
    limit = handling.budget.limit_bytes
    handling.budget.limit_bytes = 0
    try:
        answer = handling.later(body[:-100], complete=False)
        whole = handling.later(body[:-100], body[-100:])
    finally:
        handling.budget.limit_bytes = limit
    response = json.loads(answer.body)["response"]
    assert "podsettle: Overloaded: other reviews and answers" in response["warnings"][0]
    assert "patch" in json.loads(whole.body)["response"]
    assert handling.budget.used_bytes == 0


def test_review_that_was_queued_for_too_long_is_shed(handling: Handling) -> None:
    handling.source.view = view(SLEEPING, namespaces=KNOWN)
    body = review_of(QUICK)
    # No time at all is left, so any time in the queue is too long.
    shed = handling.now(body, timeout_seconds=0.0)
    assert shed is not None
    response = json.loads(shed)["response"]
    assert "podsettle: Overloaded: 0 reviews are under way" in response["warnings"][0]


START = {"waitFor": [{"dns": "a.b"}]}
FULL = pod(container("a", "/a"), annotations={"theirs": "x" * (256 * 1024 - 10)})
UNEVALUATED: dict[str, tuple[Any, str]] = {
    "too many containers": (pod(*(container(f"a{n}", "/a") for n in range(501))), "PodTooLarge"),
    "too many values": (pod(containers=[{}] * 150_001), "PodTooLarge"),
    "too long with its patch": (pod(container("a", "/a"), x="y" * 1_310_500), "PodTooLarge"),
    "full annotations": (FULL, "AnnotationsFull"),
    "a field of another type": (pod(hostNetwork="yes"), "MalformedPod"),
    "a field of another type that is decoded late": (pod(tolerations=5), "MalformedPod"),
    "an object that is no pod": ({"metadata": {"name": "p"}, "spec": []}, "MalformedPod"),
    "a mirror pod": (pod(annotations={"kubernetes.io/config.mirror": "x"}), "MirrorPod"),
    "a Windows pod": (pod(os={"name": "windows"}), "WindowsPod"),
}
"""Covered pods that are left as they are before a policy is applied, and the reason."""


def lines_about(
    handling: Handling, caplog: pytest.LogCaptureFixture, document: Any, seen: Snapshot
) -> list[str]:
    """Return the lines of the log about a review, after either way of answering it."""
    handling.source.view = seen
    found: list[list[str]] = []
    for handle in (handling.now, handling.later):
        caplog.clear()
        handle(review_of(document))
        handling.flush()
        found.append([record.getMessage() for record in caplog.records])
    at_once, later = found
    assert at_once == later
    return at_once


@pytest.mark.parametrize("case", UNEVALUATED)
def test_covered_pod_that_is_left_unevaluated_has_a_line_with_the_reason(
    handling: Handling, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    caplog.set_level("INFO", "webhook.server.reviews.log")
    document, reason = UNEVALUATED[case]
    gated = policy(remedies={"kubeletGate": {}, "postInitSleep": {}, "startGate": START})
    (line,) = lines_about(handling, caplog, document, view(gated, namespaces=KNOWN))
    assert line.endswith(f" pod ci/p: skipped: {reason}")
    assert lines_about(handling, caplog, document, view(namespaces=KNOWN)) == []


def test_pod_that_has_opted_out_has_no_line(
    handling: Handling, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "webhook.server.reviews.log")
    out = pod(annotations={"podsettle.dev/skip": "true"})
    assert lines_about(handling, caplog, out, view(SLEEPING, namespaces=KNOWN)) == []


@pytest.mark.parametrize(
    ("document", "count"),
    [(UNEVALUATED["too many containers"][0], 0), (pod(tolerations=5), 0),
     (pod(tolerations=5, labels={"a": "b"}), 1), (pod(hostNetwork="yes"), 1)],
    ids=["many containers", "malformed", "malformed and selected", "labels that cannot be read"],
)  # fmt: skip
def test_pod_that_no_policy_selects_has_no_line_if_its_labels_can_be_read(
    handling: Handling, caplog: pytest.LogCaptureFixture, document: Any, count: int
) -> None:
    caplog.set_level("INFO", "webhook.server.reviews.log")
    selecting = policy(remedies={"startGate": START}, podSelector={"matchLabels": {"a": "b"}})
    lines = lines_about(handling, caplog, document, view(selecting, namespaces=KNOWN))
    assert len(lines) == count


@pytest.mark.parametrize("name", [5, None, ["p"], "x\ny"])
def test_name_that_cannot_be_read_or_printed_is_no_obstacle(
    handling: Handling, caplog: pytest.LogCaptureFixture, name: Any
) -> None:
    caplog.set_level("INFO", "webhook.server.reviews.log")
    document = {"metadata": {"name": name}, "spec": []}
    (line,) = lines_about(handling, caplog, document, view(SLEEPING, namespaces=KNOWN))
    assert "skipped: MalformedPod" in line
    assert line.isprintable()
