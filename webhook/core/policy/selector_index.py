"""An index of label selectors. It finds the matching selectors without evaluating all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from webhook.core.labels import Labels, Matcher
from webhook.core.policy.selectors import (
    LabelSelector,
    compile_selector,
    match_all,
    required_label,
)


@dataclass(slots=True)
class _KeyBucket:
    """The selectors that require a label with one key, by the values that they accept."""

    by_value: dict[str, list[int]] = field(default_factory=dict)
    with_any_value: list[int] = field(default_factory=list)


class CompiledSelector(NamedTuple):
    """A compiled selector, which several indexes can share."""

    matches: Matcher
    required_label: tuple[str, frozenset[str] | None] | None
    """A label that the selector requires, if there is one, as `selectors.required_label` gives."""


def compile_for_index(selector: LabelSelector | None) -> CompiledSelector | None:
    """Return a selector for use in an index. None, which matches nothing, stays None."""
    if selector is None:
        return None
    return CompiledSelector(compile_selector(selector), required_label(selector))


class SelectorIndex:
    """Selectors, each filed under one label that it requires. Immutable."""

    def __init__(self, selectors: Iterable[tuple[int, CompiledSelector | None]]) -> None:
        """`selectors` are pairs of a number and a selector. A selector of None matches nothing."""
        self._matchers: dict[int, Matcher] = {}
        self._by_key: dict[str, _KeyBucket] = {}
        self._without_required_label: list[int] = []
        always: list[int] = []
        for number, selector in selectors:
            if selector is None:
                continue
            if selector.matches is match_all:
                always.append(number)
                continue
            self._matchers[number] = selector.matches
            if selector.required_label is None:
                self._without_required_label.append(number)
            else:
                self._add(number, *selector.required_label)
        self._always = tuple(always)

    def _add(self, number: int, key: str, values: frozenset[str] | None) -> None:
        bucket = self._by_key.setdefault(key, _KeyBucket())
        if values is None:
            bucket.with_any_value.append(number)
        for value in values or ():
            bucket.by_value.setdefault(value, []).append(number)

    def matching(self, labels: Labels) -> tuple[int, ...]:
        """Return the numbers of the selectors that match these labels, in ascending order."""
        candidates = [*self._without_required_label]
        for key in self._by_key.keys() & labels.keys():
            bucket = self._by_key[key]
            candidates += bucket.by_value.get(labels[key], ())
            candidates += bucket.with_any_value
        numbers = [*self._always]
        for number in candidates:
            if self._matchers[number](labels):
                numbers.append(number)  # noqa: PERF401 (a comprehension costs one more call)
        numbers.sort()
        return tuple(numbers)
