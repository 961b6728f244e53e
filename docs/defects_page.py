"""The page docs/defects.md and the lists of releases in other pages, from the catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterator

from webhook.core.defects.catalogue import DEFECTS
from webhook.core.defects.defect import Affected, Defect
from webhook.core.defects.versions import Version

_COMPONENT_NAMES = {
    "cri-o": "CRI-O",
    "containerd": "containerd",
    "any runtime": "other runtimes",
    "kubelet": "kubelet",
}
REGION = re.compile(r"(<!-- (affected|fixed) ([a-z0-9-]+) -->)(.*?)(<!-- end -->)", re.DOTALL)
"""A part of a written page that holds releases of the catalogue."""


def page_lines() -> list[str]:
    """Return the lines of docs/defects.md."""
    lines = [
        "# Defects",
        "",
        "This page is for people who search for an error message, and for operators who want to "
        "know whether their nodes have a defect. It lists the defects of runtimes and kubelets "
        "that podsettle knows, with their messages, the releases and the "
        "[remedies](glossary.md#remedy). With `when: NodesNeedIt`, a remedy is applied only to "
        "pods that could be scheduled to a node with one of its defects.",
        "",
        "| message | defect |",
        "|---|---|",
    ]
    lines += [
        f"| {_code(symptom.message)} | [{_cell(defect.title)}](#{_anchor(defect.title)}) |"
        for defect in DEFECTS
        for symptom in defect.symptom
    ]
    lines += [
        "",
        "`podsettle check -v policies.yaml nodes.yaml` says which policies the nodes in the file "
        "need. `kubectl get nodes -o yaml` writes such a file.",
        "",
        "Rules for releases:",
        "",
        "- A pre-release counts as older than its release. A vendor's rebuild, such as "
        "`1.33.5-2.rhaos4.20`, counts as the release in its name.",
        "- A release of a later line than the newest known one is *not affected, unverified*: the "
        "fix is expected to be in it. podsettle treats it as not affected.",
        "- A release that podsettle cannot read counts as affected. A node that does not report "
        "its runtime counts as a node without CRI-O and without containerd.",
        "",
    ]
    for defect in DEFECTS:
        lines += [*_section(defect), ""]
    return lines


def _section(defect: Defect) -> Iterator[str]:
    yield f"## {defect.title}"
    yield ""
    for symptom in defect.symptom:
        yield f"In {symptom.where}:"
        yield from ("", "```", symptom.message, "```", "")
    if defect.signs:
        yield from ("| event | with the text | shows the defect |", "|---|---|---|")
        for sign in defect.signs:
            texts = " and ".join(map(_code, sign.contains)) or "–"
            texts += f", not {' or '.join(map(_code, sign.lacks))}" if sign.lacks else ""
            yield f"| {sign.reason} | {texts} | {sign.certainty} |"
        yield ""
    yield f"**Cause.** {defect.cause}"
    yield ""
    yield from ("| component | affected | fixed in | newest known |", "|---|---|---|---|")
    for entry in defect.affected:
        newest = f"{entry.newest.major}.{entry.newest.minor}" if entry.newest else "–"
        fixes = ", ".join(f"[{fix.release}]({fix.link})" for fix in entry.fixed) or "–"
        name = _COMPONENT_NAMES[entry.component]
        yield f"| {name} | {affected_releases(entry)} | {fixes} | {newest} |"
    yield ""
    if defect.requires is not None:
        yield f"**Only with** {defect.requires}, which no Node shows."
        yield ""
    if defect.invisible is not None:
        yield f"**`podsettle scan` cannot see it**: {defect.invisible}."
        yield ""
    if defect.partly is not None:
        yield (
            f"**From [Kubernetes {_line(defect.partly.kubelet)}]({defect.partly.link}) on**, a "
            f"part of it is left: {defect.partly.message}."
        )
        yield ""
    yield f"**Remedy.** {_remedies(defect)} {defect.advice}"
    yield ""
    if defect.page is not None:
        yield f"More: [{defect.page}]({defect.page})."
        yield ""
    yield from ("| known | how | date |", "|---|---|---|")
    for found in defect.evidence:
        yield f"| {_cell(found.figure)} | {_cell(found.how)} | {found.date} |"
    yield ""
    yield f"Sources: {', '.join(f'<{link}>' for link in defect.links)}"


def _remedies(defect: Defect) -> str:
    if not defect.remedies:
        return "podsettle has none."
    return f"{', '.join(f'[`{name}`](policy.md)' for name in defect.remedies)}."


def affected_releases(entry: Affected) -> str:
    """Return the affected releases in words, such as `1.32 and older, 1.33.0 to 1.33.12`."""
    if not entry.fixed:
        first = f"{entry.since} and later" if entry.since else "every release"
        return f"{first}, up to {_line(entry.newest)}" if entry.newest else first
    parts: list[str] = []
    before: tuple[int, int] | None = None
    for fix in entry.fixed:
        major, minor, patch = fix.release[:3]
        if before is None:
            oldest = f"{entry.since} to " if entry.since else ""
            if minor and (entry.since is None or entry.since[:2] < fix.line):
                parts.append(f"{oldest}{major}.{minor - 1}" + ("" if oldest else " and older"))
        elif before[0] == major:
            parts += [f"{major}.{between}" for between in range(before[1] + 1, minor)]
        if patch == 1:
            parts.append(f"{major}.{minor}.0")
        elif patch:
            parts.append(f"{major}.{minor}.0 to {major}.{minor}.{patch - 1}")
        before = fix.line
    return ", ".join(parts)


def fixed_releases(entry: Affected) -> str:
    """Return the fixed releases in words, such as `1.33.13, 1.36.0 or later`."""
    return f"{', '.join(str(fix.release) for fix in entry.fixed)} or later"


def fill_regions(text: str) -> str:
    """Return a page with the releases of the catalogue in its marked regions.

    A region is `<!-- affected ID -->…<!-- end -->` or `<!-- fixed ID -->…<!-- end -->`. A region
    whose words are right keeps its line breaks.
    """
    by_id = {defect.id: defect for defect in DEFECTS}

    def fill(region: re.Match[str]) -> str:
        begin, what, name, old, end = region.groups()
        defect, is_fixed = by_id[name], what == "fixed"
        entry = next(
            entry
            for entry in defect.affected
            if (entry.fixed if is_fixed else entry.component == defect.component)
        )
        releases = fixed_releases(entry) if is_fixed else affected_releases(entry)
        words = f"{_COMPONENT_NAMES[entry.component]} {releases}"
        return region[0] if old.split() == words.split() else f"{begin}{words}{end}"

    return REGION.sub(fill, text)


def _line(version: Version) -> str:
    return f"{version.major}.{version.minor}"


def _anchor(title: str) -> str:
    """Return the anchor that Markdown renderers give to a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _code(text: str) -> str:
    return f"`{_cell(text)}`"
