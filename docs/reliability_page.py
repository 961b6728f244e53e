"""The figures of docs/reliability.md, from what faults, soak and fuzzing recorded."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]

FAULTS = Path(__file__).with_name("faults.json")
FUZZ = Path(__file__).with_name("fuzz.json")
SOAK = Path(__file__).with_name("soak.json")
_CHART_TEXT = "Memory, descriptors, threads, tasks and the time of a pod creation over the minutes"
_REGION = re.compile(r"(<!-- (faults|fuzz|soak) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
_QUERY = re.compile(r"\?\S+(?=:)")
_ADDRESS = re.compile(r"(?:https://)?127\.0\.0\.1:\d+|/tmp/\w+")
_MAX_MESSAGE = 120
"""The length of a message in the table. The file with the results has all of it."""
_MAX_SERIES = 2


def fill_regions(text: str) -> str:
    """Return a written page with the figures in its regions."""
    lines: dict[str, Callable[[], Iterator[str]]] = {
        "faults": _faults,
        "fuzz": _fuzz,
        "soak": _soak,
    }
    return _REGION.sub(
        lambda found: found[1] + "\n".join(lines[found[2]]()) + "\n" + found[4], text
    )


def _faults() -> Iterator[str]:
    runs = json.loads(FAULTS.read_text(encoding="utf-8"))
    made = [run for run in runs.values() if not run["skipped"]]
    created = sum(sum(run["created"]) for run in made)
    lost = sum(sum(run["failed"]) + sum(run["unsettled"]) for run in made)
    explained = sum(run["explained"] for run in made)
    yield (
        f"{len(made)} runs created {created:,} pods. {lost:,} pods were refused or not settled. "
        f"The fault explains {explained:,} of them, and not the other {lost - explained:,}."
    )
    yield ""
    yield (
        "| fault | pods | not settled, with Ignore | refused, with Fail | not settled, with Fail "
        "| normal after | what podsettle reports |"
    )
    yield "|---|---|---|---|---|---|---|"
    for fault in dict.fromkeys(run["fault"] for run in runs.values()):
        pair = [runs[f"{fault}/{policy}"] for policy in ("Ignore", "Fail")]
        yield f"| {' | '.join(_columns(*pair))} |"


def _columns(ignore: Json, fail: Json) -> Iterator[str]:
    done = " and ".join(dict.fromkeys(filter(None, (ignore["done"], fail["done"]))))
    yield ignore["about"] + (f" ({done})" if done else "")
    if ignore["skipped"]:
        yield from ("–",) * 5
        yield f"not run: {ignore['skipped']}"
        return
    yield f"{sum(ignore['created']):,} + {sum(fail['created']):,}"
    yield f"{sum(ignore['unsettled']):,}"
    yield f"{sum(fail['failed']):,}"
    yield f"{sum(fail['unsettled']):,}"
    times = [run["normal_seconds"] for run in (ignore, fail)]
    yield " and ".join("never" if each is None else f"{each:g} s" for each in times)
    yield "; ".join(_reports(ignore, fail)) or "–"


def _reports(*runs: Json) -> Iterator[str]:
    """Yield where podsettle reports a fault: checks, log, status, metrics, restarts."""
    lines = {line for run in runs for line in run["readiness"]}
    for mark in ("[-]", "[!]"):
        checks = {line[3:].partition(" ")[0] for line in lines if line.startswith(mark)}
        if checks:
            yield f"`{mark}` {', '.join(sorted(checks))}"
    if logged := next((run["log"] for run in runs if run["log"]), ""):
        yield f"log: `{_short(logged)}`"
    if changed := {each for run in runs for each in run["status"]}:
        yield f"status: {', '.join(sorted(changed))}"
    series = {each for run in runs for each in run["metrics"] if "_check_" not in each}
    yield from (f"`{_short(each)}`" for each in sorted(series)[:_MAX_SERIES])
    if any(run["restarts"] for run in runs):
        yield "the restarts of the pod"


def _short(text: str) -> str:
    text = _QUERY.sub("", _ADDRESS.sub("ADDRESS", text)).replace("|", "\\|").replace("`", "'")
    return text if len(text) <= _MAX_MESSAGE else text[:_MAX_MESSAGE] + "…"


def _fuzz() -> Iterator[str]:
    if not FUZZ.exists():
        yield "No run has been recorded yet."
        return
    yield "| target | minutes | inputs | edges of the code that were reached | found in this run |"
    yield "|---|---|---|---|---|"
    for run in json.loads(FUZZ.read_text(encoding="utf-8")).values():
        yield (
            f"| `{run['name']}` | {run['seconds'] / 60:.0f} | {run['executions']:,} "
            f"| {run['covered']:,} | {run['found']} |"
        )


def _soak() -> Iterator[str]:
    if not SOAK.exists():
        yield "No run has been recorded yet."
        return
    run = json.loads(SOAK.read_text(encoding="utf-8"))
    first, last = run["samples"][0], run["samples"][-1]
    yield "| what | figure |"
    yield "|---|---|"
    yield f"| length | {last['minute']:.0f} minutes |"
    yield f"| pods created | {run['created']:,} |"
    yield f"| refused | {run['failed']:,} |"
    yield f"| not settled | {run['unsettled']:,} |"
    changes = ", ".join(f"{count:,} × {name}" for name, count in run["changes"].items())
    yield f"| changes meanwhile | {changes} |"
    if run["memorySlopeMiB"] is not None:
        yield f"| slope of the memory | {run['memorySlopeMiB']:g} MiB in ten minutes |"
    for key, unit in (("memory_mib", " MiB"), ("descriptors", ""), ("threads", ""), ("tasks", "")):
        name = key.partition("_")[0]
        yield f"| {name}, first and last sample | {first[key]:.0f}{unit}, {last[key]:.0f}{unit} |"
    p99 = [sample["p99_ms"] for sample in run["samples"]]
    yield f"| p99 of a creation, best and worst sample | {min(p99):.0f} ms, {max(p99):.0f} ms |"
    yield ""
    yield f"![{_CHART_TEXT}](soak.svg)"
