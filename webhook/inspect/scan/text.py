"""The report of a scan as text for a terminal: a summary, then a block for each symptom.

With details, the evidence and the proposed policy stand in each block, and tables follow.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

import rich.table
from rich.console import Console

from webhook.core.constants import OBJECT_NAME
from webhook.core.printable import cut, printable
from webhook.inspect.findings import MAX_LISTED
from webhook.inspect.objects import WORKLOAD_GROUPS
from webhook.inspect.scan import summary
from webhook.inspect.scan.model import ScanReport, SymptomReport

_MAX_FINDINGS = 10
"""The maximum number of workloads for each symptom in the details. JSON has all of them."""
_MAX_ROWS, _MAX_DETAILED_ROWS = 8, 50
"""The maximum number of rows for a symptom, because people read them on one screen."""
_MAX_SUMMARY_LINES = 10
_MIN_SYMPTOM_LINES = 2
"""The minimum of these lines that name symptoms: one symptom, and how many others there are."""
_WIDTH = 80
"""The columns of a terminal. Commands are not cut."""
_LABEL = "  {:<7}"
"""The column of labels in the block of a symptom."""


def render_text(report: ScanReport, *, details: bool = False) -> str:
    """Return the report as lines without control characters, because a terminal executes them."""
    return "".join(f"{printable(line)}\n" for line in _lines(report, details))


def render_policies(report: ScanReport) -> str:
    """Return the proposed policies as YAML documents. Empty if there are none."""
    return "---\n".join(
        f"# {symptom.id}: {symptom.title}\n{symptom.policy}"
        for symptom in summary.found_symptoms(report)
        if symptom.policy
    )


def render_names(report: ScanReport, manifest_flags: Sequence[str] = (), *flags: str) -> str:
    """Return a line of arguments of `podsettle explain` for each workload that was found.

    It names the first pod if explain does not know the workload's kind, and with `manifest_flags`,
    because manifests seldom have workloads. A pod names its owner, which may be any text. A line
    has only names that objects can have, because shells get it.
    """
    lines: dict[str, None] = {}
    symptoms = summary.found_symptoms(report)
    for finding in (each for symptom in symptoms for each in symptom.findings):
        kind, _, name = finding.workload.partition("/")
        target = f"{kind.lower()}.{finding.group}"
        if manifest_flags or WORKLOAD_GROUPS.get(kind) != finding.group:
            target, name = "pod", finding.pod
        if OBJECT_NAME.fullmatch(name) and OBJECT_NAME.fullmatch(finding.namespace):
            words = (f"{target}/{name}", "-n", finding.namespace, *manifest_flags, *flags)
            lines[f"{shlex.join(words)}\n"] = None
    return "".join(lines)


def _lines(report: ScanReport, details: bool) -> Iterator[str]:
    shown = summary.summary_of(report)
    yield from _summary_lines(shown)
    for symptom in summary.found_symptoms(report):
        yield ""
        yield from _block(symptom, details)
    for table in summary.report_tables(report) if details else ():
        yield from ("", table.title.upper(), *_table_lines(table.heads, table.rows, _WIDTH))
    yield from ("", *_wrapped(shown.unknown))
    if not details:
        yield f"Nodes, evidence and more: {report.command} -v"


def _summary_lines(shown: summary.Summary) -> Iterator[str]:
    """Yield at most _MAX_SUMMARY_LINES lines, if names are short and there are few steps."""
    defects = [line for each in shown.defects for line in _wrapped(each)]
    unshown, others = ([], defects) if shown.symptoms else (defects, [])
    before = [*_wrapped(shown.scanned), *unshown, shown.answer]
    after = [line for step in shown.steps for line in _wrapped(step)]
    after += [f"  {shown.command}"] if shown.command else []
    room = max(_MAX_SUMMARY_LINES - len(before) - len(after), _MIN_SYMPTOM_LINES)
    rows = [line for each in shown.symptoms for line in _wrapped(each, "  ")]
    if len(rows) > room:
        rows = [cut(f"  {each}", _WIDTH) for each in shown.symptoms[: room - 1]]
        rows.append(f"  and {len(shown.symptoms) - len(rows)} more; see below")
        others = []  # The symptoms come first, and the table of nodes has these defects, too.
    yield from (*before, *rows, *others, *after)


def _block(symptom: SymptomReport, details: bool) -> Iterator[str]:
    """Yield what was found, where, and what to do."""
    yield f"{symptom.id} ({symptom.page})"
    yield from _labelled("what", symptom.title)
    rows = tuple(summary.place_rows(symptom, _MAX_DETAILED_ROWS if details else _MAX_ROWS))
    blank = _LABEL.format("")
    for number, line in enumerate(_table_lines(("", "", "n:", ""), rows, _WIDTH - len(blank))):
        yield (blank if number else _LABEL.format("where")) + line
    yield from _labelled("do", symptom.advice if details else _brief(symptom))
    commands = (each.advice for each in symptom.findings if each.advice.startswith("kubectl "))
    yield from (f"{blank}{each}" for each in list(dict.fromkeys(commands))[:MAX_LISTED])
    if details:
        yield from _labelled("result", symptom.verdict.text)
        for finding in symptom.findings[:_MAX_FINDINGS]:
            where, *lines = summary.finding_lines(finding)
            yield from _wrapped(where, "  ")
            for line in lines:
                yield from _wrapped(line, "    - ", "      ")
        left = symptom.findings[_MAX_FINDINGS:]
        if hidden := sum(each.count for each in left) + symptom.unlisted:
            yield f"  and {hidden} more at other workloads; see -o json"
        yield from (f"    {line}" for line in symptom.policy.splitlines())


def _brief(symptom: SymptomReport) -> str:
    """Return the first sentence of the advice on a defect, and what policies do."""
    if symptom.preview is None:
        return symptom.advice
    first, period, _ = symptom.advice.partition(". ")
    return " ".join([f"{first}{period.rstrip()}", *symptom.preview.sentences])


def _labelled(label: str, text: str) -> list[str]:
    return _wrapped(text, _LABEL.format(label), _LABEL.format(""))


def _wrapped(text: str, first: str = "", others: str | None = None) -> list[str]:
    """Return the lines of a text, which begin with `first` and `others`."""
    if text.startswith("kubectl "):  # A command stays on one line, so that it can be copied.
        return [f"{first}{text}"]
    return wrap(
        printable(" ".join(text.split())),
        _WIDTH,
        initial_indent=first,
        subsequent_indent=f"{first}  " if others is None else others,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _table_lines(heads: summary.Row, rows: Iterable[summary.Row], width: int) -> list[str]:
    """Return a table. It has no heads if all are empty, and cuts no name, even if it gets wider."""
    table = rich.table.Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.show_header = any(head.removeprefix("n:") for head in heads)
    for head in heads:
        is_number = head.startswith("n:")
        name = head.removeprefix("n:").upper()
        table.add_column(name, justify="right" if is_number else "left", header_style="")
    for row in rows:
        table.add_row(*(printable(" ".join(cell.split())) for cell in row))
    for column in table.columns:
        column.min_width = max(map(len, " ".join(map(str, column.cells)).split(" ")))
    console = Console(width=width, color_system=None, markup=False, emoji=False, highlight=False)
    with console.capture() as captured:
        console.print(table, crop=False)
    return [line.rstrip() for line in captured.get().splitlines()]
