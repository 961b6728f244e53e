"""Logging setup of the commands."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from time import gmtime
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from webhook.cli.echo import echo, echo_message
from webhook.core.printable import printable

LogFormat: TypeAlias = Literal["text", "json"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

LOG_FORMATS: tuple[LogFormat, ...] = ("text", "json")
LOG_LEVELS: tuple[LogLevel, ...] = ("debug", "info", "warning", "error")


class PrefixEachLineFormatter(logging.Formatter):
    """A formatter that puts time and level in front of each line of a message."""

    # In UTC and as in RFC 3339, like the time in a structured log.
    converter = staticmethod(gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        """Return the message with time and level in front of each line."""
        prefix = f"{record.asctime} {record.levelname} "
        return "\n".join(prefix + printable(line) for line in record.message.split("\n"))

    def formatException(self, ei: Any) -> str:  # noqa: N802 (logging's name)
        """Return a traceback with indented lines.

        The text of an exception can contain text from a pod. Indented, it cannot forge a line.
        """
        lines = super().formatException(ei).splitlines()
        return "\n".join(f"  {printable(line)}" for line in lines)

    def usesTime(self) -> bool:  # noqa: N802 (logging's name)
        """Return True, because `formatMessage` needs `asctime`."""
        return True


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
        if isinstance(message, StructuredLines):
            return "\n".join(self._object(record, *line) for line in message.with_fields())
        return self._object(record, record.getMessage(), {})

    def _object(self, record: logging.LogRecord, message: str, fields: dict[str, str]) -> str:
        time = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message,
            **fields,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # Clients choose names in reviews. All characters beyond ASCII are escaped, because some of
        # them end a line or reverse the text in a terminal.
        return json.dumps(line)


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
