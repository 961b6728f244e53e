"""The texts of pages that follow from the results: sections, phrases, and the catalogue's entry."""

from __future__ import annotations

import re
import textwrap

from bench.text_table import markdown_rows
from race.cells import DEFAULT_LIFETIME_MS, Condition, Delivery, Kind, Provocation
from race.errors import RaceError
from race.report import (
    exposure_sentence,
    full_table,
    lifetime_table,
    percent,
    runtime_name,
    sentences,
    summary_table,
    target_table,
    wrapped_init,
)
from race.results import Count, Results, RuntimeResult, sum_of

# Sections are lines of their own. Phrases are parts of a sentence.
_SECTION = re.compile(r"(<!-- race (\w+): begin -->\n).*?(<!-- race \2: end -->)", re.DOTALL)
_PHRASE = re.compile(r"(<!-- race (\w+) -->).*?(<!-- end -->)", re.DOTALL)
# The entry of the catalogue of defects for `make race`.
_EVIDENCE = re.compile(
    r"  - figure: >-\n(?:      .*\n)+    how: >-\n      `make race`: (?:.*\n)+?    date: .*\n"
)
_YAML_WIDTH = 118
# The lowest and the highest rate of earlier runs, some of them by hand and under load.
_EARLIER_UNWRAPPED_INIT = (0.71, 0.99)
_EARLIER_UNWRAPPED_REGULAR = (0.64, 1.0)
_EARLIER_10_MS = (0.17, 0.68)
# The longest exposure of an earlier run, on the same machine under load.
_EARLIER_EXPOSURE_MS = 913


def sections(results: Results) -> dict[str, str]:
    """Return the text of each section of a page, by its name."""
    details = ", ".join(f"{name} {value}" for name, value in results.environment.items())
    sources = "".join(
        f" {runtime_name(each)} is commit {each.commit}."
        for each in results.runtimes
        if each.commit
    )
    full: list[str] = []
    for each in results.runtimes:
        full += [f"#### {runtime_name(each)}", "", *markdown_rows(full_table(each)), ""]
        full += [line for sentence in sentences(each) for line in (sentence, "")]
    return {
        "summary": "\n".join([*markdown_rows(summary_table(results)), ""]),
        "lifetimes": "\n".join([*markdown_rows(lifetime_table(results)), ""]),
        "full": "\n".join(full),
        "targets": "\n".join([*markdown_rows(target_table(results)), ""]),
        "environment": f"Measured with `make race`: {details}.{sources}\n",
        "exposure": "".join(
            f"- {runtime_name(each)}: {exposure_sentence(each.exposure)}\n"
            for each in results.runtimes
            if each.exposure
        ),
        "limits": _limits(results) + "\n",
    }


def phrases(results: Results) -> dict[str, str]:
    """Return the text of each phrase of a page, by its name."""
    affected = results.runtimes[0]
    late, none = Provocation.LATE_EXIT, Delivery.NONE
    ten = [
        count
        for condition, count in affected.counts.items()
        if (condition.provocation, condition.lifetime_ms, condition.is_wrapped) == (late, 10, True)
    ]
    return {
        "total": _out_of(wrapped_init(results)),
        "unwrapped": _span(_EARLIER_UNWRAPPED_INIT, affected.total(late, none, Kind.INIT)),
        "regular": _span(_EARLIER_UNWRAPPED_REGULAR, affected.total(late, none, Kind.REGULAR)),
        "ten": _span(_EARLIER_10_MS, *ten),
        "exposed": _exposed(results),
        "lost": _out_of(affected.total(late, none, Kind.INIT) or Count(0, 0)),
        "versions": ", ".join(
            [
                f"Kubernetes {results.environment.get('Kubernetes', 'unknown')}",
                *map(runtime_name, results.runtimes),
            ]
        ),
        "date": results.environment.get("date", "unknown"),
    }


def _out_of(count: Count) -> str:
    return f"{count.failed or 'none'} of {count.total:,}"


def _span(earlier: tuple[float, float], *counts: Count | None) -> str:
    """Return the lowest and the highest rate of earlier runs and of this one."""
    rates = [*earlier, *(each.rate for each in counts if each)]
    return f"{100 * min(rates):.0f} to {100 * max(rates):.0f} %"


def _exposed(results: Results) -> str:
    """Return the end of a sentence that says why the default lifetime does not always suffice."""
    found = [each.exposure for each in results.runtimes if each.exposure]
    above = sum(each.above[DEFAULT_LIFETIME_MS] for each in found)
    longest = max((each.longest_ms for each in found), default=0.0)
    if above:
        containers = sum(each.containers for each in found)
        return (
            f"{above} of {containers:,} containers of that run were exposed to the race for more "
            f"than {DEFAULT_LIFETIME_MS} ms, at most {longest:.0f} ms"
        )
    return (
        f"the exposure to the race was at most {longest:.0f} ms in that run, but "
        f"{_EARLIER_EXPOSURE_MS} ms in another one"
    )


def _limits(results: Results) -> str:
    """Return what the bounds of the wrapped containers hold for."""
    affected, *others = results.runtimes
    parts = ["The rates of wrapped containers hold for nodes that expose containers no longer."]
    if affected.exposure:
        parts.append(
            f"In this run, containers on {runtime_name(affected)} were exposed for at most "
            f"{affected.exposure.longest_ms:.0f} ms."
        )
    for each in others:
        if each.exposure:
            above = each.exposure.above[DEFAULT_LIFETIME_MS]
            parts.append(
                f"On {runtime_name(each)}, in the same run, the longest exposure was "
                f"{each.exposure.longest_ms:.0f} ms, and {above} of {each.exposure.containers:,} "
                f"({percent(above / each.exposure.containers)}) were longer than "
                f"{DEFAULT_LIFETIME_MS} ms."
            )
    return " ".join(parts)


def fill_page(page: str, results: Results) -> str:
    """Return a page with the text of each section and phrase. Raise RaceError if it has none."""
    texts, parts = sections(results), phrases(results)
    page, found = _SECTION.subn(lambda match: f"{match[1]}{texts[match[2]]}{match[3]}", page)
    page, more = _PHRASE.subn(lambda match: f"{match[1]}{parts[match[2]]}{match[3]}", page)
    if found + more == 0:
        raise RaceError("the page contains no markers for results")
    return page


def fill_catalogue(text: str, results: Results) -> str:
    """Return the YAML of a defect with the results of a run as one of its figures."""
    affected, *others = results.runtimes
    controls = affected.total(Provocation.LATE_EXIT, Delivery.NONE, Kind.INIT) or Count(0, 0)
    each = min(
        count.ended for condition, count in affected.counts.items() if _is_default_init(condition)
    )
    wrapped = wrapped_init(results)
    figure = (
        f"{wrapped.failed} of {wrapped.total:,} init containers with postInitSleep (at least "
        f"{each:,} with each delivery) and {controls.failed} of {controls.total:,} without it got "
        f"exit code 255; {' and '.join(map(_all_of, others))}."
    )
    environment = results.environment
    how = (
        "`make race`: the state query was made to fail, and the exit code was handed over 400 ms "
        f"late. Kubernetes {environment['Kubernetes']}, {runtime_name(affected)}, "
        f"{environment['processor'].partition(', ')[2]}, load average before the run "
        f"{environment['load average before']}."
    )
    entry = (
        f"  - figure: >-\n{_folded(figure)}    how: >-\n{_folded(how)}"
        f"    date: {environment['date']}\n"
    )
    new, count = _EVIDENCE.subn(lambda _: entry, text)
    if count != 1:
        raise RaceError(f"the catalogue has {count} entries for `make race`, and not 1")
    return new


def _is_default_init(condition: Condition) -> bool:
    return (
        condition.is_default
        and condition.kind is Kind.INIT
        and condition.provocation is Provocation.LATE_EXIT
    )


def _all_of(result: RuntimeResult) -> str:
    count = sum_of(result.counts.values()) or Count(0, 0)
    return f"{count.failed} of {count.total:,} containers on {runtime_name(result)}"


def _folded(text: str) -> str:
    indent = " " * 6
    lines = textwrap.wrap(
        text, _YAML_WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )
    return "\n".join(lines) + "\n"
