"""The log of a server: its formats, and which messages it contains."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import subprocess
import sys
from typing import Any, TextIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.waiting import eventually
from webhook.cli.logging import (
    LOG_FORMATS,
    LOG_LEVELS,
    BatchHandler,
    JsonFormatter,
    PrefixEachLineFormatter,
)

RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def record(message: object, *arguments: object, **attributes: Any) -> logging.LogRecord:
    values = {"name": "webhook.x", "levelno": logging.WARNING, "levelname": "WARNING"}
    return logging.makeLogRecord(values | {"msg": message, "args": arguments} | attributes)


def review(message: object, *arguments: object, **attributes: Any) -> logging.LogRecord:
    """A record of a review."""
    values = {"fields": {}, "levelno": logging.INFO, "levelname": "INFO"}
    return record(message, *arguments, **(values | attributes))


class Writes(io.StringIO):
    """A stream that keeps each written text."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def write(self, text: str) -> int:
        self.texts.append(text)
        return len(text)


def new_handler(formatter: logging.Formatter | None = None) -> tuple[Writes, BatchHandler]:
    stream = Writes()
    target: logging.StreamHandler[TextIO] = logging.StreamHandler(stream)
    target.setFormatter(formatter)
    return stream, BatchHandler(target)


async def handle(handler: BatchHandler, *entries: logging.LogRecord) -> None:
    for entry in entries:
        handler.handle(entry)


def formatted(entry: logging.LogRecord) -> dict[str, Any]:
    line = JsonFormatter().format(entry)
    assert line.isascii()
    assert line.isprintable()
    found: dict[str, Any] = json.loads(line)
    return found


def test_json_line_has_time_level_logger_and_message() -> None:
    found = formatted(record("%s failed", "x", created=1_700_000_000.25))
    assert found == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "warning",
        "logger": "webhook.x",
        "message": "x failed",
    }


def test_json_time_has_milliseconds_even_at_a_full_second() -> None:
    assert RFC_3339.fullmatch(formatted(record("x", created=1_700_000_000.0))["time"])


def test_json_line_has_the_fields_of_its_record() -> None:
    fields = {"uid": "1", "namespace": "ci", "pod": "p", "applied": "a/postInitSleep=Applied"}
    found = formatted(record("uid 1", fields=fields))
    assert fields.items() <= found.items()
    assert found["message"] == "uid 1"


def test_batch_of_several_records_is_as_many_lines_of_json() -> None:
    lines = [(f"uid {number}", {"uid": str(number)}) for number in range(3)]
    stream, handler = new_handler(JsonFormatter())
    with asyncio.Runner() as runner:
        runner.run(handle(handler, *(review(text, fields=fields) for text, fields in lines)))
    handler.close()
    (text,) = stream.texts
    found = [json.loads(line) for line in text.splitlines()]
    assert [(each["message"], {"uid": each["uid"]}) for each in found] == lines
    assert all(RFC_3339.fullmatch(each["time"]) for each in found)


@given(st.text(st.characters()), st.text(st.characters()))
def test_json_line_of_any_text_is_one_line_of_ascii(message: str, name: str) -> None:
    assert formatted(record("%s", message))["message"] == message
    found = formatted(record(message, fields={"pod": name}))
    assert (found["message"], found["pod"]) == (message, name)


def test_json_line_has_the_traceback_of_an_exception() -> None:
    try:
        raise ValueError("no\nvalue")
    except ValueError:
        found = formatted(record("failed", exc_info=sys.exc_info()))
    assert found["message"] == "failed"
    assert found["exception"].startswith("Traceback (most recent call last):\n")
    assert found["exception"].endswith("ValueError: no\nvalue")


def test_text_format_prefixes_each_line_and_leaves_fields_out() -> None:
    text = PrefixEachLineFormatter().format(record("a\nb", fields={"uid": "1"}))
    first, second = text.splitlines()
    assert first.endswith(" WARNING a")
    assert second.endswith(" WARNING b")


@given(st.floats(0, 4e9))
def test_text_format_shows_times_as_logging_does(created: float) -> None:
    entry = record("x")
    entry.created, entry.msecs = created, created % 1 * 1000 // 1
    standard = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    assert PrefixEachLineFormatter().format(entry) == standard.format(entry)


@pytest.mark.parametrize("end", ["\n", "\r", "\x85", "\u2028"])
def test_text_of_an_exception_cannot_forge_a_line(end: str) -> None:
    try:
        raise ValueError(f"x{end}2026-01-01 00:00:00,000 INFO forged")
    except ValueError:
        entry = record("failed", exc_info=sys.exc_info())
    first, *others = PrefixEachLineFormatter().format(entry).splitlines()
    assert first.endswith(" WARNING failed")
    assert others[0] == "  Traceback (most recent call last):"
    assert others[-1].endswith("INFO forged")
    assert all(line.startswith("  ") for line in others)


async def test_records_of_reviews_wait_and_each_keeps_its_own_time() -> None:
    stream, handler = new_handler(PrefixEachLineFormatter())
    times = [1_700_000_000.25, 1_700_000_001.5]
    entries = [review("a", created=time, msecs=time % 1 * 1000) for time in times]
    await handle(handler, *entries)
    assert not stream.texts
    await eventually(lambda: stream.texts)
    (text,) = stream.texts
    assert [line.split()[1][-6:] for line in text.splitlines()] == ["20,250", "21,500"]


@pytest.mark.parametrize(
    "urgent",
    [
        record("x", levelno=logging.DEBUG),
        record("x", levelno=logging.INFO),
        record("x", levelno=logging.ERROR),
        review("x", levelno=logging.WARNING),
    ],
)
async def test_other_record_is_written_at_once_after_those_that_wait(
    urgent: logging.LogRecord,
) -> None:
    stream, handler = new_handler()
    await handle(handler, review("a"), review("b"), urgent, review("c"))
    assert stream.texts == ["a\nb\nx\n"]
    handler.close()
    assert stream.texts == ["a\nb\nx\n", "c\n"]


async def test_full_buffer_is_written_at_once() -> None:
    stream, handler = new_handler()
    await handle(handler, *(review(str(number)) for number in range(1001)))
    assert len(stream.texts) == 5
    handler.close()
    assert "".join(stream.texts).split() == [str(number) for number in range(1001)]


def test_record_of_a_review_without_an_event_loop_is_written_at_once() -> None:
    stream, handler = new_handler()
    handler.handle(review("a"))
    assert stream.texts == ["a\n"]


async def test_record_that_cannot_be_formatted_costs_no_other_record(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream, handler = new_handler()
    await handle(handler, review("a"), record("%d", "no number"), review("b"))
    handler.close()
    assert "".join(stream.texts) == "a\nb\n"
    assert "--- Logging error ---" in capsys.readouterr().err


async def test_stream_that_cannot_be_written_raises_no_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stream = io.StringIO()
    handler = BatchHandler(logging.StreamHandler(stream))
    await handle(handler, review("a"))
    stream.close()
    handler.flush()
    assert "I/O operation on closed file" in capsys.readouterr().err


LOG_AND_EXIT = """
import asyncio, logging, sys
from webhook.cli.logging import set_up_server_logging
set_up_server_logging("text", "info")
async def main():
    for number in range(3):
        logging.getLogger("webhook.x").info("line %d", number, extra={"fields": {}})
asyncio.run(main())
"""


@pytest.mark.parametrize("exit_code", [0, 3])
def test_records_that_wait_are_written_when_the_process_exits(exit_code: int) -> None:
    script = f"{LOG_AND_EXIT}sys.exit({exit_code})"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == exit_code
    assert [line.split(" INFO ")[1] for line in done.stderr.splitlines()] == [
        "line 0",
        "line 1",
        "line 2",
    ]


LOG_EVERYTHING = """
import logging, sys
from webhook.cli.logging import set_up_server_logging
set_up_server_logging(*sys.argv[1:])
for logger in ("webhook.server.run", "uvicorn.error", "kubernetes_asyncio.client.rest"):
    for level in ("DEBUG", "INFO", "WARNING", "ERROR"):
        logging.getLogger(logger).log(getattr(logging, level), f"{logger} {level}")
"""


@pytest.mark.parametrize("log_format", LOG_FORMATS)
@pytest.mark.parametrize("level", LOG_LEVELS)
def test_level_applies_to_all_loggers_but_libraries_never_log_debug(
    log_format: str, level: str
) -> None:
    command = [sys.executable, "-c", LOG_EVERYTHING, log_format, level]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()
    if log_format == "json":
        logged = [json.loads(line)["message"] for line in lines]
    else:
        logged = [" ".join(line.split()[-2:]) for line in lines]
    levels = ["DEBUG", "INFO", "WARNING", "ERROR"]
    levels = levels[levels.index(level.upper()) :]
    libraries = [name for name in levels if name != "DEBUG"]
    assert logged == [
        *(f"webhook.server.run {name}" for name in levels),
        *(f"uvicorn.error {name}" for name in libraries),
        *(f"kubernetes_asyncio.client.rest {name}" for name in libraries),
    ]
