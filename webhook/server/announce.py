"""What readiness looks at, told in the log as it changes: a pod that is gone answers no probe."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from webhook.cluster.source import Check

log = logging.getLogger(__name__)

_SECONDS_BETWEEN_LOOKS = 2.0


async def announce(checks: Callable[[], Iterable[Check]]) -> None:
    """Log each change of a check, until cancelled. What is well from the start is not worth it."""
    said: dict[str, Check] = {}
    while True:
        await asyncio.sleep(_SECONDS_BETWEEN_LOOKS)
        for check in checks():
            before = said.get(check.name, Check(check.name, ready=True))
            if check != before:
                _tell(check)
            said[check.name] = check


def _tell(check: Check) -> None:
    if not check.ready:
        log.warning("not ready: %s: %s", check.name, check.note or "failed")
    elif check.note:
        log.warning("%s: %s", check.name, check.note)
    else:
        log.info("%s: ok again", check.name)
