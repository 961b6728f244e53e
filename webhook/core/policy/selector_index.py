"""Many selectors at once: which of them hold, without asking each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from webhook.core.policy.selectors import (
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


class CompiledSelector(NamedTuple):
    """A selector as an index takes it: compiled once, however many indexes hold it."""

    matches: Matcher
    needs: tuple[str, frozenset[str] | None] | None
    """A label without which it does not hold, if there is one: see `handle`."""


def compile_for_index(selector: LabelSelector | None) -> CompiledSelector | None:
    """A selector, compiled; None, which holds for nothing, stays None."""
    if selector is None:
        return None
    return CompiledSelector(compile_selector(selector), handle(selector))


class LabelIndex:
    """Selectors by one label that each of them needs. Immutable."""

    def __init__(self, selectors: Iterable[tuple[int, CompiledSelector | None]]) -> None:
        """Selectors go by the numbers that the caller gives them; None holds for nothing."""
        self._matchers: dict[int, Matcher] = {}
        self._by_key: dict[str, _UnderKey] = {}
        self._without_handle: list[int] = []
        always: list[int] = []
        for number, selector in selectors:
            if selector is None:
                continue
            if selector.matches is everything:
                always.append(number)
                continue
            self._matchers[number] = selector.matches
            if selector.needs is None:
                self._without_handle.append(number)
            else:
                self._put(number, *selector.needs)
        self._always = tuple(always)

    def _put(self, number: int, key: str, values: frozenset[str] | None) -> None:
        under = self._by_key.setdefault(key, _UnderKey())
        if values is None:
            under.with_any.append(number)
        for value in values or ():
            under.by_value.setdefault(value, []).append(number)

    def matching(self, labels: Labels) -> tuple[int, ...]:
        """The numbers of the selectors that hold for these labels, in ascending order."""
        candidates = [*self._without_handle]
        for key in self._by_key.keys() & labels.keys():
            under = self._by_key[key]
            candidates += under.by_value.get(labels[key], ())
            candidates += under.with_any
        found = [*self._always]
        for number in candidates:
            if self._matchers[number](labels):
                found.append(number)  # noqa: PERF401 (a comprehension is a call of its own)
        found.sort()
        return tuple(found)
