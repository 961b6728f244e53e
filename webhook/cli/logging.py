"""Logging setup of the commands."""

from __future__ import annotations

import logging


class PrefixEachLineFormatter(logging.Formatter):
    """A formatter that puts time and level in front of each line of a message."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        """Return the message with time and level in front of each line."""
        prefix = f"{record.asctime} {record.levelname} "
        return prefix + record.message.replace("\n", f"\n{prefix}")

    def usesTime(self) -> bool:  # noqa: N802 (logging's name)
        """Return True, because `formatMessage` needs `asctime`."""
        return True


def set_up_server_logging() -> None:
    """Log every message at INFO and above to standard error, with time and level."""
    handler = logging.StreamHandler()
    handler.setFormatter(PrefixEachLineFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def set_up_client_logging() -> None:
    """Log retries, and the reasons for which a command waits, to standard error."""
    logging.basicConfig(format="podsettle: %(message)s")
    logging.getLogger("webhook.client").setLevel(logging.INFO)
