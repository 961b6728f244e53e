"""How the log of a server looks."""

from __future__ import annotations

import logging


class LinesFormatter(logging.Formatter):
    """Time and level in front of each line of a message, since a message may be several lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        """One message, as it goes into the log."""
        prefix = f"{record.asctime} {record.levelname} "
        return prefix + record.message.replace("\n", f"\n{prefix}")

    def usesTime(self) -> bool:  # noqa: N802 (logging's name)
        """Whether `asctime` is wanted: always."""
        return True


def log_as_server() -> None:
    """Log every message at INFO and above to standard error, with time and level."""
    handler = logging.StreamHandler()
    handler.setFormatter(LinesFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def log_retries() -> None:
    """Log to standard error which requests are retried, and what a command waits for."""
    logging.basicConfig(format="podsettle: %(message)s")
    logging.getLogger("webhook.client").setLevel(logging.INFO)
