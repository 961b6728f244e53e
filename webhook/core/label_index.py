"""Many selectors at once: which of them hold, without asking each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from webhook.core.selectors import (
    Labels,
    LabelSelector,
    Matcher,
    compile_selector,
    everything,
    handle,
)


@dataclass(slots=True)
class _UnderKey:
    """The selectors that need a label of this key: of one of some values, or of any."""

    by_value: dict[str, list[int]] = field(default_factory=dict)
    with_any: list[int] = field(default_factory=list)


class LabelIndex:
    """Selectors by one label that each of them needs. Immutable."""

    def __init__(self, selectors: Iterable[LabelSelector | None]) -> None:
        """Selectors go by their positions; None holds for nothing."""
        self._matchers: list[Matcher] = []
        self._by_key: dict[str, _UnderKey] = {}
        self._without_handle: list[int] = []
        always: list[int] = []
        for position, selector in enumerate(selectors):
            matcher = _nothing if selector is None else compile_selector(selector)
            self._matchers.append(matcher)
            found = handle(selector) if selector is not None else None
            if matcher is everything:
                always.append(position)
            elif found is not None:
                self._put(position, *found)
            elif selector is not None:
                self._without_handle.append(position)
        self._always = tuple(always)

    def _put(self, position: int, key: str, values: frozenset[str] | None) -> None:
        under = self._by_key.setdefault(key, _UnderKey())
        if values is None:
            under.with_any.append(position)
        for value in values or ():
            under.by_value.setdefault(value, []).append(position)

    def matching(self, labels: Labels) -> tuple[int, ...]:
        """The positions of the selectors that hold for these labels, in ascending order."""
        candidates = [*self._without_handle]
        for key in self._by_key.keys() & labels.keys():
            under = self._by_key[key]
            candidates += under.by_value.get(labels[key], ())
            candidates += under.with_any
        found = [*self._always]
        for position in candidates:
            if self._matchers[position](labels):
                found.append(position)  # noqa: PERF401 (a comprehension is a call of its own)
        found.sort()
        return tuple(found)


def _nothing(_labels: Labels) -> bool:
    return False
