"""Logging setup of the commands."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from webhook.cli.echo import echo, echo_message
from webhook.core.printable import printable

LogFormat: TypeAlias = Literal["text", "json"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

LOG_FORMATS: tuple[LogFormat, ...] = ("text", "json")
LOG_LEVELS: tuple[LogLevel, ...] = ("debug", "info", "warning", "error")


def _time(record: logging.LogRecord) -> str:
    """Return the time of a message in UTC, as in RFC 3339."""
    time = datetime.fromtimestamp(record.created, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class PrefixEachLineFormatter(logging.Formatter):
    """A formatter that puts time and level in front of each line of a message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a message, and those of its exception."""
        prefix = f"{_time(record)} {record.levelname} "
        lines = [prefix + printable(line) for line in record.getMessage().split("\n")]
        if record.exc_info:
            # The text of an exception can contain text from a pod. Indented, it cannot forge a
            # line.
            traceback = self.formatException(record.exc_info).splitlines()
            lines += [f"  {printable(line)}" for line in traceback]
        return "\n".join(lines)


@runtime_checkable
class StructuredLines(Protocol):
    """A message object that consists of lines, each of which has fields of its own."""

    def with_fields(self) -> list[tuple[str, dict[str, str]]]:
        """Return the text and the fields of each line."""
        ...


class JsonFormatter(logging.Formatter):
    """A formatter that writes each message as one line of JSON.

    A message of several StructuredLines becomes as many lines of JSON.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return JSON objects with time, level, logger, message, and the message's own fields."""
        message: object = record.msg
        lines: list[tuple[str, dict[str, str]]] = (
            message.with_fields()
            if isinstance(message, StructuredLines)
            else [(record.getMessage(), {})]
        )
        level = record.levelname.lower()
        base = {"time": _time(record), "level": level, "logger": record.name}
        end = {"exception": self.formatException(record.exc_info)} if record.exc_info else {}
        # Clients choose names in reviews. All characters beyond ASCII are escaped, because some of
        # them end a line or reverse the text in a terminal.
        return "\n".join(
            json.dumps({**base, "message": text, **fields, **end}) for text, fields in lines
        )


def set_up_server_logging(log_format: LogFormat, level: LogLevel) -> None:
    """Log messages at `level` and above to standard error.

    Libraries log at INFO and above even if `level` is debug, because the debug messages of the
    Kubernetes client contain Secrets.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else PrefixEachLineFormatter())
    logging.basicConfig(level=max(number, logging.INFO), handlers=[handler])
    logging.getLogger("webhook").setLevel(number)


class _EchoHandler(logging.Handler):
    """A handler that prints a message as one line, so that text from a pod cannot forge a line."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message to standard error."""
        echo_message(record.getMessage())
        if record.exc_info:
            for line in logging.Formatter().formatException(record.exc_info).splitlines():
                echo(f"  {line}", err=True)


def log_requests() -> None:
    """Log each request to the API server to standard error."""
    logging.getLogger("webhook.cluster.client").setLevel(logging.DEBUG)


def set_up_client_logging() -> None:
    """Log warnings, retries, and why a command waits, to standard error."""
    logging.basicConfig(handlers=[_EchoHandler()])
    logging.getLogger("webhook.client").setLevel(logging.INFO)
