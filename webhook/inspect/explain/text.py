"""Explanations as text for a terminal: a heading, and a section for each field with a title."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import BaseModel

from webhook.core.cluster.remedy_need import NEED_PHRASES
from webhook.core.policy.policy_matches import Verdict
from webhook.core.preview.model import PodPreview
from webhook.core.printable import cut, printable
from webhook.inspect.explain import model
from webhook.inspect.objects import MAX_NAME_CHARACTERS

_MAX_LISTED = 50
"""The maximum number of lines in a section, because people read them in a terminal."""
_MAX_LINE_CHARACTERS = 500
"""The maximum length of a line. Lines about real pods have at most 300 characters, but tenants
write names, annotations and messages. JSON has all of it."""
_WHOLE = ("symptoms", "unknown", "advice")
"""The sections that are not cut: they have commands and policies, and only names of tenants."""


def as_text(report: BaseModel) -> str:
    """Return an explanation as lines, each with a line break.

    The lines contain no control characters, because a terminal would execute them.
    """
    first, second, *_ = (getattr(report, name) for name in type(report).model_fields)
    lines = [f"{first}: {second}"]
    if isinstance(report, model.Explanation):
        name, namespace = (cut(x, MAX_NAME_CHARACTERS) for x in (report.name, report.namespace))
        verdict = cut(report.verdict, _MAX_LINE_CHARACTERS)
        lines = [f"{report.kind} {name} in namespace {namespace}: {verdict}"]
    for name, field in type(report).model_fields.items():
        section = list(_lines(getattr(report, name))) if field.title else []
        if name in ("reasons", "remedies", "values"):
            section = [", ".join(section)] if section else []
        if name not in _WHOLE:
            more = len(section) - _MAX_LISTED
            section = [cut(line, _MAX_LINE_CHARACTERS) for line in section[:_MAX_LISTED]]
            section += [f"{more} more; see -o json"] if more > 0 else []
        lines += ["", f"{field.title}:", *(f"  {line}" for line in section)] if section else []
    return "".join(f"{printable(line)}\n" for line in lines)


def _lines(value: object) -> Iterator[str]:
    """Yield the lines of a field, or of a part of it."""
    match value:
        case str():
            yield from value.splitlines()
        case list():
            for each in value:
                yield from _lines(each)
        case bool():
            yield "yes" if value else "no"
        case dict():  # A setting, or a defect with what is better than the remedy.
            yield ": ".join(value.values())
        case model.AppliedRemedy():
            purpose = f": {value.purpose}" if value.purpose else ""
            yield f"{value.remedy}, by policy {value.policy}{purpose}"
            if value.fields:
                yield f"  sets {', '.join(cut(each, MAX_NAME_CHARACTERS) for each in value.fields)}"
            if value.today:
                yield f"  would not be applied today: {value.today}"
        case model.LeftOut():
            subject = f"{value.remedy} {value.container}".strip()
            yield f"{subject}: {value.reason}: {value.sentence}"
        case model.ContainerExplanation():
            kind, changes = "init container" if value.init else "container", " ".join(value.changes)
            yield f"{value.name} ({kind}): {changes or 'podsettle did not change it.'}"
        case model.FoundSymptom():
            pods = f" in {value.pods} pods" if value.pods > 1 else ""
            for each in value.sentences[:_MAX_LISTED]:
                yield f"{value.symptom}{pods}: {value.certainty}: {cut(each, _MAX_LINE_CHARACTERS)}"
            yield from (f"  {value.advice}", f"  page: {value.page}")
            if value.policy:
                yield "  The proposed policy:"
                yield from (f"    {line}" for line in value.policy.splitlines())
        case model.PodGroup():
            yield f"{value.count} (such as {value.examples[0]}): {value.state}"
        case PodPreview():
            yield from [value.summary] if value.summary else []
            for each in value.outcomes:  # As `podsettle preview` prints them.
                subject = " ".join(filter(None, (each.reason, each.remedy, each.container)))
                by = f" (by {each.policy})" if each.policy else ""
                yield f"{subject}: {each.message}{by}"
            matches = value.policy_matches
            if not any(each.verdict is Verdict.ACTS for each in matches):
                for each in matches:
                    if each.verdict is Verdict.NOT_MATCHED:
                        yield f"policy {each.policy} does not cover the pod: {each.why}"
            yield from value.notes
        case model.NodeNeed():
            need = f"{NEED_PHRASES[value.status]}: {value.message}"
            yield f"{value.remedy}, by policy {value.policy}: {need}"
        case model.NotRead():
            command = f" To check: {value.command}" if value.command else ""
            yield f"{value.what}: {value.why}.{command}"
