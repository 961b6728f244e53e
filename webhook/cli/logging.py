"""Logging setup of the commands."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from datetime import UTC, datetime
from functools import lru_cache
from logging.handlers import MemoryHandler
from typing import Any, Literal, TextIO, TypeAlias

LogFormat: TypeAlias = Literal["text", "json"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

LOG_FORMATS: tuple[LogFormat, ...] = ("text", "json")
LOG_LEVELS: tuple[LogLevel, ...] = ("debug", "info", "warning", "error")


_FLUSH_SECONDS = 0.02
"""Maximum delay of a review's line. With a longer delay, batches would grow and delay reviews."""
_MAX_WAITING_RECORDS = 200
"""Maximum number of records that wait. Clients choose names, so a record can take 20 KB."""


@lru_cache(maxsize=1)
def _local_time(seconds: int) -> str:
    """Return a time as text. The last one is cached, because a time takes longer than a line."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


class PrefixEachLineFormatter(logging.Formatter):
    """A formatter that puts time and level in front of each line of a message."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        """Return the message with time and level in front of each line."""
        prefix = f"{record.asctime} {record.levelname} "
        return prefix + record.message.replace("\n", f"\n{prefix}")

    def formatException(self, ei: Any) -> str:  # noqa: N802 (logging's name)
        """Return a traceback with indented lines.

        The text of an exception can contain text from a pod. Indented, it cannot forge a line.
        """
        return "\n".join(f"  {line}" for line in super().formatException(ei).splitlines())

    def formatTime(  # noqa: N802 (logging's name)
        self, record: logging.LogRecord, datefmt: str | None = None
    ) -> str:
        """Return the time of a record as logging does, but format each second once."""
        if datefmt is not None:
            return super().formatTime(record, datefmt)
        return f"{_local_time(int(record.created))},{int(record.msecs):03}"

    def usesTime(self) -> bool:  # noqa: N802 (logging's name)
        """Return True, because `formatMessage` needs `asctime`."""
        return True


class JsonFormatter(logging.Formatter):
    """A formatter that writes each record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a JSON object with time, level, logger, message, and the record's `fields`."""
        created = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": created.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # Clients choose names in reviews. All characters beyond ASCII are escaped, because some of
        # them end a line or reverse the text in a terminal.
        return json.dumps(line)


class BatchHandler(MemoryHandler):
    """A handler that writes the records of many reviews together, because each write takes 2 µs.

    A record of a review has the attribute `fields`. It waits for at most 20 ms on the event loop.
    Any other record, and a warning or an error, is written at once, after the records that wait.
    `logging.shutdown` writes all records that wait.
    """

    def __init__(self, target: logging.StreamHandler[TextIO]) -> None:
        super().__init__(_MAX_WAITING_RECORDS, logging.WARNING, target)
        self._target = target

    def shouldFlush(self, record: logging.LogRecord) -> bool:  # noqa: N802 (logging's name)
        """Return whether no record may wait any longer. The first record starts a timer."""
        if super().shouldFlush(record) or not hasattr(record, "fields"):
            return True
        if len(self.buffer) == 1:
            try:
                asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self.flush)
            except RuntimeError:
                # Without a loop, no timer would write the record.
                return True
        return False

    def flush(self) -> None:
        """Write all records that wait with one write."""
        self.acquire()
        try:
            records, self.buffer = self.buffer, []
            if records:
                self._write(records)
        finally:
            self.release()

    def _write(self, records: list[logging.LogRecord]) -> None:
        try:
            lines = [self._target.format(record) + self._target.terminator for record in records]
        except Exception:
            # The target writes each record alone, and reports the one that cannot be formatted.
            for record in records:
                self._target.handle(record)
            return
        try:
            self._target.stream.write("".join(lines))
            self._target.flush()
        except Exception:
            self._target.handleError(records[-1])


def set_up_server_logging(log_format: LogFormat, level: LogLevel) -> None:
    """Log messages at `level` and above to standard error.

    Libraries log at INFO and above even if `level` is debug, because the debug messages of the
    Kubernetes client contain Secrets.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    target = logging.StreamHandler()
    target.setFormatter(JsonFormatter() if log_format == "json" else PrefixEachLineFormatter())
    logging.basicConfig(level=max(number, logging.INFO), handlers=[BatchHandler(target)])
    logging.getLogger("webhook").setLevel(number)


def set_up_client_logging() -> None:
    """Log retries, and the reasons for which a command waits, to standard error."""
    logging.basicConfig(format="podsettle: %(message)s")
    logging.getLogger("webhook.client").setLevel(logging.INFO)
