"""The report of a scan as one HTML file, which needs no network and runs no script.

A Content-Security-Policy allows only the style sheet of the file. The page has the order of the
text: the summary, the symptoms, the nodes. The evidence and the figures of pictures are folded.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from html import escape

from webhook.core.printable import printable
from webhook.inspect.findings import Finding, format_time
from webhook.inspect.scan import unsettled
from webhook.inspect.scan.charts import STATUSES, bar_chart, counts, timeline
from webhook.inspect.scan.model import ScanReport, SymptomReport
from webhook.inspect.scan.style import STYLE
from webhook.inspect.scan.summary import found_symptoms, summary_of, symptom_line

_MAX_FINDINGS = 50
"""The maximum number of workloads for each symptom, so that the file stays below 500 KiB."""
_MAX_CHARACTERS = 300
"""The maximum length of a piece of evidence."""

_CODE = re.compile("`([^`]+)`")
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
_CSP = f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'"


def render_html(report: ScanReport) -> str:
    """Return the report as an HTML document."""
    return "".join(_document(report))


def _document(report: ScanReport) -> Iterator[str]:
    title = f"podsettle scan of {report.cluster}"
    yield (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_CSP)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)}</title><style>{STYLE}</style></head><body><main>"
        f"<h1>{_text(title)}</h1>"
    )
    yield from _summary(report)
    found = found_symptoms(report)
    if found:
        yield "<h2>Symptoms</h2>"
        for symptom in found:
            yield from _symptom_part(symptom)
    yield from _timeline_part(report)
    yield from _node_part(report)
    yield from _not_found_part(report)
    yield from _policy_part(report)
    yield from _limit_part(report)
    yield "</main></body></html>\n"


def _summary(report: ScanReport) -> Iterator[str]:
    summary = summary_of(report)
    version = f"Kubernetes {report.server_version}" if report.server_version else "unknown release"
    yield f'<p class="muted">{format_time(report.scanned_at)}, {_text(version)}</p>'
    yield f"<p>{_text(summary.scanned)}</p>"
    style = "found" if summary.symptoms else "none"
    yield from (f'<p class="found">{_text(each)}</p>' for each in summary.defects)
    yield f'<p class="{style}">{_text(summary.answer)}</p>'
    if summary.symptoms:
        yield "<ul>"
        for symptom, line in zip(found_symptoms(report), summary.symptoms, strict=True):
            yield f'<li><a href="#{symptom.id}">{_text(line)}</a></li>'
        yield "</ul>"
    yield from (f"<p>{_sentence(step)}</p>" for step in summary.steps)
    if summary.command:
        yield f"<pre>{_text(summary.command)}</pre>"
    if summary.unknown:
        yield f'<p class="muted">{_text(summary.unknown)}</p>'
    yield from (f'<p class="muted">{_text(note)}</p>' for note in report.notes)


def _symptom_part(symptom: SymptomReport) -> Iterator[str]:
    """Yield a symptom, folded. A browser unfolds it for a link to the paragraph inside."""
    line = symptom_line(symptom).removeprefix(f"{symptom.id}: ")
    yield (
        f"<details><summary><b>{_text(symptom.title)}</b> "
        f'<span class="muted">{_text(line)}</span></summary>'
    )
    page = f" Page: <code>{_text(symptom.page)}</code>" if symptom.page else ""
    yield f'<p id="{symptom.id}">{_sentence(symptom.advice)}{page}</p>'
    if symptom.policy:
        lines = "\n".join(map(_text, symptom.policy.splitlines()))
        yield f"<pre>{lines}</pre>"
    yield f"<p>{_text(symptom.verdict.text)}</p>"
    yield from _table(
        ("namespace", "workload", "n:times", "newest", "certainty", "what, and its evidence"),
        (_finding_cells(finding) for finding in symptom.findings[:_MAX_FINDINGS]),
        style="findings",
    )
    hidden = sum(each.count for each in symptom.findings[_MAX_FINDINGS:]) + symptom.unlisted
    if hidden:
        yield f'<p class="muted">and {hidden} more at other workloads; see -o json</p>'
    yield from _table(
        ("node", "runtime", "kubelet", "n:times", "newest"),
        (
            (
                _text(node.name),
                _text(node.runtime or "unknown"),
                _text(node.kubelet or "unknown"),
                str(node.count),
                format_time(node.last_seen) if node.last_seen is not None else "–",
            )
            for node in symptom.nodes[:_MAX_FINDINGS]
        ),
    )
    yield "</details>"


def _finding_cells(finding: Finding) -> tuple[str, ...]:
    evidence = "".join(
        f"<li>{_text(each.object)}: <code>{_text(each.field)}</code>: "
        f"{_text(_shortened(' '.join(each.value.split())))}</li>"
        for each in finding.evidence
    )
    advice = f"<p><code>{_text(finding.advice)}</code></p>" if finding.advice else ""
    return (
        _text(finding.namespace),
        _text(finding.workload),
        str(finding.count),
        format_time(finding.last_seen) if finding.last_seen is not None else "–",
        _text(finding.certainty),
        f"{_text(finding.sentence)}<ul>{evidence}</ul>{advice}",
    )


def _timeline_part(report: ScanReport) -> Iterator[str]:
    seen = [symptom for symptom in report.symptoms if symptom.timeline]
    untimed = _without_time(report.symptoms)
    if not seen and not untimed:
        return
    yield "<h2>When</h2>"
    if seen:
        yield timeline(seen, report.bin_seconds)
    if untimed:
        yield f'<p class="muted">Not in the picture, because no time is known: {_text(untimed)}</p>'
    if seen:
        yield "<details><summary>The figures of the timeline</summary>"
        yield from _table(
            ("symptom", "from (UTC)", "n:times"),
            (
                (_text(symptom.id), format_time(part.begin), str(part.count))
                for symptom in seen
                for part in symptom.timeline
            ),
        )
        yield "</details>"


def _without_time(symptoms: Iterable[SymptomReport]) -> str:
    """Return how many findings of each symptom are not in the timeline, as a list for people."""
    missing = {
        symptom.id: symptom.count - sum(part.count for part in symptom.timeline)
        for symptom in symptoms
        if symptom.id != unsettled.ID
    }
    return ", ".join(f"{name} {count} times" for name, count in missing.items() if count)


def _node_part(report: ScanReport) -> Iterator[str]:
    yield "<h2>Nodes by defect</h2>"
    if not report.nodes:
        yield "<p>The nodes are not known.</p>"
        return
    yield bar_chart(report.defects)
    yield "<details><summary>The figures of the defects</summary>"
    yield from _table(
        ("defect", *(f"n:{name}" for _, name in STATUSES), "possible with", "remedy", "policy"),
        (
            (
                f"{_text(each.title)} (<code>{_text(each.defect)}</code>)",
                *(str(count) for count in counts(each)),
                _sentence(each.requires or "–"),
                _text(" or ".join(each.remedies)),
                _text(", ".join(each.policies) or "–"),
            )
            for each in report.defects
        ),
    )
    yield "</details><details><summary>Nodes by runtime and kubelet</summary>"
    yield from _table(
        ("n:nodes", "runtime", "kubelet", "names", "defects", "cured by"),
        (
            (
                str(group.count),
                _text(group.runtime),
                _text(group.kubelet),
                _text(", ".join(group.names)),
                _text(
                    ", ".join(
                        f"{each.defect} ({each.status})"
                        for each in group.defects
                        if each.status != "not affected"
                    )
                    or "–"
                ),
                _text(
                    ", ".join(f"{d.cured_by} ({d.defect})" for d in group.defects if d.cured_by)
                    or "–"
                ),
            )
            for group in report.nodes
        ),
    )
    yield "</details>"


def _not_found_part(report: ScanReport) -> Iterator[str]:
    others = [symptom for symptom in report.symptoms if not symptom.findings]
    if others:
        yield "<details><summary>Symptoms that were not found</summary>"
        yield from _table(
            ("symptom", "result"),
            (
                (
                    f"{_text(symptom.title)} (<code>{_text(symptom.id)}</code>)",
                    f'<span class="{symptom.verdict.answer}">{_text(symptom.verdict.text)}</span>',
                )
                for symptom in others
            ),
        )
        yield "</details>"


def _policy_part(report: ScanReport) -> Iterator[str]:
    if report.needs:
        yield "<details><summary>Policies in force</summary>"
        answers = {"True": "still needed", "False": "no longer needed"}
        yield from _table(
            ("policy", "remedy", "result", "nodes"),
            (
                (
                    _text(need.policy),
                    _text(need.remedy),
                    answers.get(need.status, "perhaps still needed"),
                    _text(need.message),
                )
                for need in report.needs
            ),
        )
        yield "</details>"


def _limit_part(report: ScanReport) -> Iterator[str]:
    yield "<details><summary>What was looked at</summary>"
    yield from _table(
        ("resource", "result", "why", "missing right"),
        (
            (
                _text(area.name),
                area.looked.phrase,
                _text(area.why or "–"),
                _text(area.right or "–"),
            )
            for area in report.areas
        ),
    )
    yield "</details>"


def _text(text: str) -> str:
    """Return a line as HTML. Characters that would change the order of a page's text are shown."""
    return escape(printable(text))


def _sentence(text: str) -> str:
    """Return a sentence as HTML, with the texts between backquotes as code."""
    return _CODE.sub(r"<code>\1</code>", _text(text))


def _shortened(value: str) -> str:
    return value if len(value) <= _MAX_CHARACTERS else f"{value[:_MAX_CHARACTERS]}…"


def _table(
    heads: tuple[str, ...], rows: Iterator[tuple[str, ...]], style: str = ""
) -> Iterator[str]:
    """Yield a table. A head that begins with `n:` is that of a column of numbers.

    The cells are HTML, and the heads are text. `style` is the class of the table. In one of
    findings, each cell has its head, because on a narrow screen the cells are below each other.
    """
    attributes = [' class="n"' if head.startswith("n:") else "" for head in heads]
    titles = [_text(head.removeprefix("n:")) for head in heads]
    table = f'<table class="{style}">' if style else "<table>"
    yield f'<div class="scroll" tabindex="0">{table}<thead><tr>'
    for title, attribute in zip(titles, attributes, strict=True):
        yield f'<th scope="col"{attribute}>{title}</th>'
    yield "</tr></thead><tbody>"
    if style:
        pairs = zip(titles, attributes, strict=True)
        attributes = [f'{attribute} data-head="{title}"' for title, attribute in pairs]
    for row in rows:
        cells = zip(row, attributes, strict=True)
        yield "<tr>" + "".join(f"<td{each}>{cell}</td>" for cell, each in cells) + "</tr>"
    yield "</tbody></table></div>"
