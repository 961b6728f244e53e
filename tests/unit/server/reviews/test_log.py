"""The log of decisions: which reviews have a line, at which level, and what it contains."""

from __future__ import annotations

import json
import logging
import tracemalloc
from typing import Any

import jsonpatch
import pytest
from msgspec.structs import replace

from tests.support.factories import SETTINGS
from tests.support.reviews import PODS, UID, load_pod, make_request, review
from tests.support.waiting import eventually
from webhook.cli.logging import JsonFormatter
from webhook.cluster.manifest_files_source import ManifestsSource
from webhook.core.admission.cache import DecisionCache
from webhook.core.admission.decider import Decider
from webhook.core.admission.handler import Answer, admit
from webhook.server.reviews.log import ReviewLog

TEKTON = load_pod(next(path for path in PODS if path.stem == "tekton-taskrun-sidecar"))


class Logged:
    """A review log, and its records since the start of the test."""

    def __init__(self, source: ManifestsSource, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO")
        self.review_log = ReviewLog()
        self._source = source
        self._caplog = caplog

    def answer_to(self, pod: Any, cache: DecisionCache | None = None, **request: Any) -> Answer:
        body = json.dumps(review(pod, **request)).encode()
        return admit(body, Decider(SETTINGS, cache), self._source.view)

    def record(self, answer: Answer) -> None:
        assert answer.request is not None
        self.review_log.record(answer.request, answer.decision)

    @property
    def records(self) -> list[logging.LogRecord]:
        return [r for r in self._caplog.records if r.name == "webhook.server.reviews.log"]

    @property
    def lines(self) -> list[str]:
        return [line for record in self.records for line in record.getMessage().split("\n")]


@pytest.fixture
def logged(source: ManifestsSource, caplog: pytest.LogCaptureFixture) -> Logged:
    return Logged(source, caplog)


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
@pytest.mark.parametrize("cached", [True, False])
async def test_settled_pod_has_one_line_and_its_reinvocation_one_at_debug_level(
    logged: Logged, caplog: pytest.LogCaptureFixture, level: str, cached: bool
) -> None:
    caplog.set_level(level)
    cache = DecisionCache() if cached else None
    for _ in range(2):
        first = logged.answer_to(TEKTON, cache)
        settled = jsonpatch.apply_patch(TEKTON, list(first.decision.operations))
        second = logged.answer_to(settled, cache)
        assert "AlreadySettled" in second.decision.texts.log_summary
        logged.record(first)
        logged.record(second)
    logged.review_log.flush()
    applied, again = ("INFO", "postInitSleep[prepare]=Applied"), ("DEBUG", "AlreadySettled")
    found = [
        (r.levelname, text)
        for r in logged.records
        for line in r.getMessage().split("\n")
        for _, text in (applied, again)
        if text in line
    ]
    # A line at debug level follows the earlier lines.
    assert found == ([applied, again] * 2 if level == "DEBUG" else [applied] * 2)


async def test_pod_that_gets_another_remedy_when_reviewed_again_has_a_line(logged: Logged) -> None:
    first = logged.answer_to(TEKTON)
    settled = jsonpatch.apply_patch(TEKTON, list(first.decision.operations))
    # A container that another webhook has injected.
    settled["spec"]["initContainers"].append({"name": "late", "image": "x", "command": ["/late"]})
    logged.record(logged.answer_to(settled))
    logged.review_log.flush()
    (line,) = logged.lines
    assert "AlreadySettled" in line
    assert "[late]=Applied" in line


async def test_lines_of_one_moment_are_written_together_and_in_order(logged: Logged) -> None:
    for number in range(100):
        logged.record(logged.answer_to(TEKTON, uid=f"{UID}-{number}"))
    assert not logged.records
    await eventually(lambda: logged.records)
    assert len(logged.records) == 1
    assert [line.split()[1] for line in logged.lines] == [f"{UID}-{n}" for n in range(100)]
    # The next line starts the time again.
    logged.record(logged.answer_to(TEKTON, uid="later"))
    await eventually(lambda: len(logged.records) == 2)


async def test_lines_are_written_at_once_when_too_many_wait(logged: Logged) -> None:
    answer = logged.answer_to(TEKTON)
    for _ in range(199):
        logged.record(answer)
    assert not logged.records
    logged.record(answer)
    assert len(logged.lines) == 200


async def test_line_in_json_has_the_fields_of_its_review(logged: Logged) -> None:
    for uid in ("first", "second"):
        logged.record(logged.answer_to(TEKTON, uid=uid))
    logged.review_log.flush()
    (entry,) = logged.records
    found = [json.loads(line) for line in JsonFormatter().format(entry).split("\n")]
    assert [line["uid"] for line in found] == ["first", "second"]
    for line, text in zip(found, logged.lines, strict=True):
        assert line["message"] == text
        assert f"{line['namespace']}/{line['pod']}" in text
        assert line["namespace"] == TEKTON["metadata"]["namespace"]
        assert "postInitSleep[prepare]=Applied" in line["applied"]


async def test_nothing_is_kept_if_the_level_excludes_the_lines(
    logged: Logged, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")
    logged.record(logged.answer_to(TEKTON))
    caplog.set_level("INFO")
    logged.review_log.flush()
    assert not logged.records


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("y" * 10_000, "yyy"),
        ("\n" * 10_000, r"\n\n"),
        ("\U000e0001" * 10_000, r"\U000e0001"),
        ("x\nforged\r\x1b[31m" + "y" * 1_000_000, r"x\nforged\r\x1b[31m"),
    ],
    ids=["long", "lines", "escapes", "forged"],
)
@pytest.mark.parametrize("field", ["uid", "namespace", "name"])
async def test_long_name_is_cut_and_cannot_forge_a_line(
    logged: Logged, field: str, text: str, shown: str
) -> None:
    metadata = TEKTON["metadata"] | ({"name": text} if field == "name" else {})
    names: dict[str, Any] = {} if field == "name" else {field: text}
    named = logged.answer_to(TEKTON | {"metadata": metadata}, **names).request
    assert named is not None
    logged.review_log.record(named, logged.answer_to(TEKTON).decision)
    logged.review_log.flush()
    (line,) = logged.lines
    assert line.isprintable()
    assert shown in line
    assert len(line) <= 2400
    # Container runtimes split lines of more than 16 KiB, and half a line is no JSON.
    assert len(JsonFormatter().format(logged.records[0])) < 16 * 1024


@pytest.mark.parametrize("field", ["uid", "namespace", "name"])
async def test_long_name_does_not_occupy_memory_until_the_flush(logged: Logged, field: str) -> None:
    rendered = logged.answer_to(TEKTON).decision
    logged.review_log.record(make_request(TEKTON, "ci"), rendered)
    tracemalloc.start()
    try:
        text = "y" * 1_000_000
        pod = TEKTON | {"metadata": {"name": text if field == "name" else "p"}}
        named = make_request(pod, text if field == "namespace" else "ci")
        if field == "uid":
            named = replace(named, uid=text)
        logged.review_log.record(named, rendered)
        del text, pod, named
        used_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used_bytes < 100_000
