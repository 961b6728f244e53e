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
