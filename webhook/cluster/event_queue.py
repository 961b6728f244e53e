"""The Events that wait to be written, without repetitions and within limits.

A tenant chooses the pods of its namespaces, their number and their owners. So the memory, the rate
of writes and the share of a namespace are limited. Namespaces are served in a round-robin.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple

from webhook.core.pod import OwnerReference
from webhook.core.reasons import Reason

REPEAT_SECONDS = 600.0
"""The time for which an Event is not repeated. A Job creates its pods again and again."""
_MAX_WAITING = 100
_MAX_WAITING_IN_NAMESPACE = 20
"""The maximum number of Events of one namespace."""
_MAX_REMEMBERED = 1_000
"""The maximum number of Events that are remembered in order not to repeat them."""


class EventKey(NamedTuple):
    """What makes two Events the same. The uid alone would not do, because a client chooses it."""

    namespace: str
    owner_uid: str
    remedy: str
    reason: Reason


class PodEvent(NamedTuple):
    """An Event on the controller of a pod."""

    key: EventKey
    owner: OwnerReference
    message: str


class EventQueue:
    """A queue of Events that is fair to namespaces.

    All times are those of one monotonic clock, in seconds. One tenant may have many namespaces, so
    a namespace with few Events gets space from the one with the most.
    """

    def __init__(self) -> None:
        # By namespace. Events are taken from the first one. No deque is empty.
        self._waiting: OrderedDict[str, deque[PodEvent]] = OrderedDict()
        self._count = 0
        # The oldest entry comes first, because no entry is renewed.
        self._added_at: dict[EventKey, float] = {}

    def __len__(self) -> int:
        return self._count

    def repeats(self, key: EventKey, now: float) -> bool:
        """Return whether the same Event was added less than REPEAT_SECONDS ago."""
        added_at = self._added_at.get(key)
        return added_at is not None and now - added_at < REPEAT_SECONDS

    def add(self, event: PodEvent, now: float) -> bool:
        """Add an Event that repeats no other. Return False if this or another Event is dropped.

        A namespace has at most _MAX_WAITING_IN_NAMESPACE. If the queue is full, the newest Event of
        the namespace with the most Events is dropped. The given Event is dropped if its own
        namespace would then have as many.
        """
        own = self._waiting.get(event.key.namespace, ())
        if len(own) >= _MAX_WAITING_IN_NAMESPACE:
            return False
        is_full = self._count >= _MAX_WAITING
        if is_full:
            longest = max(self._waiting.values(), key=len)
            if len(longest) <= len(own) + 1:
                return False
            self.forget(longest.pop().key)
            self._count -= 1
        self.forget(event.key)  # An entry that has expired would keep its place in the order.
        if len(self._added_at) >= _MAX_REMEMBERED:
            self.forget(next(iter(self._added_at)))
        self._added_at[event.key] = now
        self._waiting.setdefault(event.key.namespace, deque()).append(event)
        self._count += 1
        return not is_full

    def take(self) -> PodEvent:
        """Remove the oldest Event of the next namespace. The queue must not be empty."""
        namespace, events = self._waiting.popitem(last=False)
        event = events.popleft()
        if events:
            self._waiting[namespace] = events
        self._count -= 1
        return event

    def forget(self, key: EventKey) -> None:
        """Let the same Event be added again, because it was not written."""
        self._added_at.pop(key, None)


class RateLimit:
    """A token bucket: bursts of `burst`, and `per_second` in the long run."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._tokens = float(burst)
        self._updated_at: float | None = None

    def reserve(self, now: float) -> float:
        """Take a token, and return the number of seconds until it exists."""
        if self._updated_at is not None:
            gained = (now - self._updated_at) * self._per_second
            self._tokens = min(float(self._burst), self._tokens + gained)
        self._updated_at = now
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._per_second)
