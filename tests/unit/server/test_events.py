"""Which reviews are reported as Events, and that reporting cannot disturb an answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any

import httpx
import pytest

from tests.support.factories import container, namespace, pod, policy, view
from tests.support.reviews import review
from tests.support.server_fixtures import make_components
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.core.admission.review import Request
from webhook.core.policy.snapshot import Snapshot
from webhook.core.reasons import Outcome
from webhook.server.app import create_app
from webhook.server.components import Components
from webhook.server.reviews.body import ReviewBody
from webhook.server.reviews.handler import ReviewHandler, ReviewTiming
from webhook.server.reviews.load_shedding import MemoryBudget

# No command, and no look-up of images.
UNMET = pod(containers=[container("main")], restartPolicy="Never")
SETTLED = pod(containers=[container("main", "/x")], restartPolicy="Never")
REMEDIES = {"postInitSleep": {"containers": ["*"], "when": "Always"}}
MUTATE = policy("sleep", remedies=REMEDIES)
AUDIT = policy("sleep", remedies=REMEDIES, action="Audit")


class Reporter:
    """Keeps what it is offered."""

    counts: Mapping[str, int] = {"written": 1}

    def __init__(self) -> None:
        self.offered: list[tuple[str, str]] = []

    def offer(self, request: Request[Any], unmet: Sequence[Outcome]) -> None:
        self.offered += [(request.uid, f"{each.policy}/{each.reason}") for each in unmet]


class FailingReporter(Reporter):
    def offer(self, request: Request[Any], unmet: Sequence[Outcome]) -> None:
        raise ValueError(request.uid, unmet)


def components(source: ManifestsSource, seen: Snapshot, reporter: Reporter) -> Components:
    source.view = seen
    return make_components(source, events=reporter)


async def answer(handler: ReviewHandler, body: bytes, at_once: bool) -> Any:
    if at_once:
        found = handler.handle_now(body, ReviewTiming(monotonic(), 7.0))
        assert found is not None
        return json.loads(found)["response"]
    read = ReviewBody(MemoryBudget())
    read.feed(body)
    read.finish()
    answer = await handler.handle(read, ReviewTiming(monotonic(), 7.0), "")
    return json.loads(answer.body)["response"]


def review_of(document: Any, **request: Any) -> bytes:
    made = review({}, namespace="ci", object=document)
    made["request"] |= request
    return json.dumps(made).encode()


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    ("document", "acting", "dry_run", "reported"),
    [
        (UNMET, MUTATE, False, ["sleep/NoCommand"]),
        (UNMET, MUTATE, True, []),
        (UNMET, AUDIT, False, []),
        (SETTLED, MUTATE, False, []),
    ],
    ids=["unmet", "dry run", "audit", "settled"],
)
async def test_only_unmet_wishes_of_real_requests_are_reported(
    source: ManifestsSource,
    document: Any,
    acting: Any,
    dry_run: bool,
    reported: list[str],
    at_once: bool,
) -> None:
    reporter = Reporter()
    handler = components(source, view(acting, namespaces=[namespace("ci")]), reporter).handler
    response = await answer(handler, review_of(document, dryRun=dry_run, uid="1"), at_once)
    assert response["allowed"] is True
    assert reporter.offered == [("1", each) for each in reported]


async def test_error_of_the_reporter_changes_no_answer(
    source: ManifestsSource, caplog: pytest.LogCaptureFixture
) -> None:
    seen = view(MUTATE, namespaces=[namespace("ci")])
    body = review_of(UNMET, uid="1")
    answers = [
        await answer(components(source, seen, reporter).handler, body, at_once=True)
        for reporter in (Reporter(), FailingReporter())
    ]
    assert answers[0] == answers[1]
    assert "internal error: an answer was not counted or not logged" in caplog.text


@pytest.mark.parametrize(("dry_run", "settled"), [(False, 1), (True, 0)])
async def test_dry_run_settles_no_pod(source: ManifestsSource, dry_run: bool, settled: int) -> None:
    found = components(source, view(MUTATE, namespaces=[namespace("ci")]), Reporter())
    await answer(found.handler, review_of(SETTLED, dryRun=dry_run), at_once=True)
    labels = {"policy": "sleep", "remedy": "postInitSleep"}
    value = found.metrics.registry.get_sample_value("podsettle_settled_pods_total", labels)
    assert (value or 0) == settled


def test_metrics_count_the_events_of_the_reporter(source: ManifestsSource) -> None:
    registry = components(source, view(), Reporter()).metrics.registry
    counted = {
        result: registry.get_sample_value("podsettle_events_total", {"result": result})
        for result in ("written", "dropped", "failed")
    }
    assert counted == {"written": 1, "dropped": 0, "failed": 0}


async def test_scrape_shows_the_policies_of_the_current_view(source: ManifestsSource) -> None:
    app = create_app(components(source, view(MUTATE), Reporter()))
    sample = 'podsettle_policy_still_needed{policy="sleep",remedy="postInitSleep"} 1.0'
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="https://podsettle") as client:
        assert sample in (await client.get("/metrics")).text
        source.view = view()
        assert sample not in (await client.get("/metrics")).text
