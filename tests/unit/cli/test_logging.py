"""The log of a server: its formats, and which messages it contains."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.cli.logging import LOG_FORMATS, LOG_LEVELS, JsonFormatter, PrefixEachLineFormatter

RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


class Lines:
    """A message of several lines, each with fields."""

    def __init__(self, *lines: tuple[str, dict[str, str]]) -> None:
        self._lines = list(lines)

    def __str__(self) -> str:
        return "\n".join(text for text, _ in self._lines)

    def with_fields(self) -> list[tuple[str, dict[str, str]]]:
        return self._lines


def record(message: object, *arguments: object, **attributes: Any) -> logging.LogRecord:
    values = {"name": "webhook.x", "levelno": logging.WARNING, "levelname": "WARNING"}
    return logging.makeLogRecord(values | {"msg": message, "args": arguments} | attributes)


def formatted(entry: logging.LogRecord) -> dict[str, Any]:
    line = JsonFormatter().format(entry)
    assert line.isascii()
    assert line.isprintable()
    found: dict[str, Any] = json.loads(line)
    return found


def test_json_line_has_time_level_logger_and_message() -> None:
    for created, milliseconds in ((1_700_000_000.25, "250"), (1_700_000_000.0, "000")):
        assert formatted(record("%s failed", "x", created=created)) == {
            "time": f"2023-11-14T22:13:20.{milliseconds}Z",
            "level": "warning",
            "logger": "webhook.x",
            "message": "x failed",
        }


def test_message_of_several_lines_is_as_many_lines_of_json() -> None:
    lines = [(f"uid {number}", {"uid": str(number)}) for number in range(3)]
    text = JsonFormatter().format(record(Lines(*lines)))
    found = [json.loads(line) for line in text.split("\n")]
    assert [(each["message"], {"uid": each["uid"]}) for each in found] == lines
    assert all(RFC_3339.fullmatch(each["time"]) for each in found)


@given(st.text(st.characters()), st.text(st.characters()))
def test_json_line_of_any_text_is_one_line_of_ascii(message: str, name: str) -> None:
    assert formatted(record("%s", message))["message"] == message
    found = formatted(record(Lines((message, {"pod": name}))))
    assert (found["message"], found["pod"]) == (message, name)


def failed(text: str, message: str = "failed") -> logging.LogRecord:
    """Return the record of a message with an exception."""
    try:
        raise ValueError(text)
    except ValueError:
        return record(message, exc_info=sys.exc_info())


def test_json_line_has_the_traceback_of_an_exception() -> None:
    found = formatted(failed("no\nvalue"))
    assert found["message"] == "failed"
    assert found["exception"].startswith("Traceback (most recent call last):\n")
    assert found["exception"].endswith("ValueError: no\nvalue")


def test_text_format_prefixes_each_line_and_leaves_fields_out() -> None:
    lines = Lines(("a", {"uid": "1"}), ("b", {"uid": "2"}))
    text = PrefixEachLineFormatter().format(record(lines))
    first, second = text.splitlines()
    assert RFC_3339.fullmatch(first.partition(" ")[0])
    assert first.endswith(" WARNING a")
    assert second.endswith(" WARNING b")


def test_text_format_escapes_characters_that_control_a_terminal() -> None:
    text = PrefixEachLineFormatter().format(failed("\x1b]0;x\x07", "a\x1b[2J\u202e\rb"))
    assert all(line.isprintable() for line in text.split("\n"))
    assert "a\\x1b[2J\\u202e\\rb" in text


@pytest.mark.parametrize("end", ["\n", "\r", "\x85", "\u2028"])
def test_text_of_an_exception_cannot_forge_a_line(end: str) -> None:
    forged = failed(f"x{end}2026-01-01 00:00:00,000 INFO forged")
    first, *others = PrefixEachLineFormatter().format(forged).splitlines()
    assert first.endswith(" WARNING failed")
    assert others[0] == "  Traceback (most recent call last):"
    assert others[-1].endswith("INFO forged")
    assert all(line.startswith("  ") for line in others)


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
