"""The timeouts of watches and log streams."""

from __future__ import annotations

from dataclasses import dataclass

from webhook.cluster.watch import WatchLimits


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """The timeouts of watches and log streams. The defaults suit every cluster."""

    stable_after_seconds: float = 15.0
    """A stream that breaks after this time is not a failed attempt. The time is longer than the
    timeout of a connection. For a watch, it begins with the server's answer."""
    log_silence_seconds: float = 120.0
    """If a log stream sends no byte for this time, it is opened again. Its connection may be
    broken."""
    watch_limits: WatchLimits = WatchLimits()  # noqa: RUF009 (it is frozen)
