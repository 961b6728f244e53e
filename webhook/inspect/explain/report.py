"""What `podsettle explain` says, as JSON, and as text for a terminal.

The text has a heading, and a section for each field and each key with a title.
"""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from webhook.core.cluster.remedy_need import NEED_PHRASES
from webhook.core.policy.policy_matches import Verdict
from webhook.core.preview.model import PodPreview
from webhook.core.printable import cut, printable
from webhook.core.types import CamelCaseModel, Json
from webhook.inspect.findings import Certainty
from webhook.inspect.installation import Called
from webhook.inspect.objects import MAX_NAME_CHARACTERS
from webhook.inspect.scan.model import PolicyNeed

_MAX_LISTED = 50
"""The maximum number of lines in a section, because people read them in a terminal."""
_MAX_LINE_CHARACTERS = 500
"""The maximum length of a line. Lines about real pods have at most 300 characters, but tenants
write names, annotations and messages. JSON has all of it."""
_WHOLE = ("symptoms", "unknown", "advice")
"""The sections that are not cut: they have commands and policies, and only names of tenants."""


class AppliedRemedy(CamelCaseModel):
    """A remedy that the annotation `podsettle.dev/applied` names."""

    remedy: str
    policy: str
    purpose: str = Field(description="What the remedy is for. Empty if podsettle does not know it.")
    fields: list[str] = Field(description="The fields of the pod that the remedy has set.")
    today: str = Field(description="Why the remedy would not be applied today. Empty if it would.")


class LeftOut(CamelCaseModel):
    """A remedy that a policy wanted, and that the pod or one of its containers does not have."""

    reason: str = Field(description="A code, which may be one of another version of podsettle.")
    remedy: str
    container: str = Field(description="Empty if the reason is for the whole pod.")
    sentence: str = Field(description="The reason in a sentence.")


class ContainerExplanation(CamelCaseModel):
    """What podsettle did to one container."""

    name: str
    init: bool
    changes: list[str] = Field(description="Sentences. Empty if podsettle did not change it.")


class FoundSymptom(CamelCaseModel):
    """A symptom that `podsettle scan` finds in the pod, or in pods of the workload."""

    symptom: str = Field(description="The name of the symptom, as `podsettle scan` has it.")
    certainty: Certainty = Field(description="That of the most certain finding.")
    pods: int
    sentences: list[str]
    advice: str
    policy: str = Field(description="The policy that a scan proposes, as YAML. Empty if none.")
    page: str


class PodGroup(CamelCaseModel):
    """Pods of a workload to which podsettle did the same."""

    state: str = Field(description="What podsettle did to these pods, in a sentence.")
    count: int
    examples: list[str] = Field(description="Names of at most three of the pods.")


class NotRead(CamelCaseModel):
    """The JSON form of an `Unread`, with what the explanation lacks or assumes without it."""

    what: str
    why: str
    right: str = Field(description="The missing right. Empty if another cause is known.")
    command: str = Field(description="The command that asks for the right, if one is missing.")


class Explanation(CamelCaseModel):
    """What podsettle did to a pod, or to the pods of a workload, and what it would do today."""

    kind: str
    namespace: str
    name: str
    verdict: str = Field(description="The answer in a sentence.")
    summary: str = Field(title="The pod says")
    applied: list[AppliedRemedy] = Field(title="Applied")
    left_out: list[LeftOut] = Field(title="Left out")
    containers: list[ContainerExplanation] = Field(title="Containers")
    pods: list[PodGroup] = Field(title="Its pods")
    symptoms: list[FoundSymptom] = Field(title="Symptoms")
    notes: list[str] = Field(title="Notes")
    called: Called | None
    """Whether the API server calls podsettle for a new pod that podsettle would change."""
    today: PodPreview | None = Field(title="The next pod")
    """The decision on it. None if the policies or the namespace could not be read."""
    nodes: list[PolicyNeed] = Field(title="Nodes")
    node: str = Field(title="The pod's node")
    unknown: list[NotRead] = Field(title="Not known")
    advice: list[str] = Field(title="What you can do")


WORD_TITLES = {
    "warns": "Whether kubectl warns of it",
    "remedies": "Remedies that give it",
    "cause": "Cause",
    "messages": "What users see",
    "curedBy": "Remedies for it",
    "defects": "For",
    "nodeConfiguration": "Configure the nodes first",
    "settings": "Settings",
    "values": "Values",
    "reasons": "Reasons that it gives",
    "advice": "What you can do",
    "commented": "The script, with comments",
    "page": "More",
}
"""The titles of what is said about a reason code, a remedy, a defect or the wrapper, by key."""


def as_text(report: Explanation | Json) -> str:
    """Return an explanation of an object or of a word as lines, each with a line break.

    The lines contain no control characters, because a terminal would execute them.
    """
    if isinstance(report, Explanation):
        name, namespace = (cut(x, MAX_NAME_CHARACTERS) for x in (report.name, report.namespace))
        verdict = cut(report.verdict, _MAX_LINE_CHARACTERS)
        lines = [f"{report.kind} {name} in namespace {namespace}: {verdict}"]
        titles = {name: each.title for name, each in Explanation.model_fields.items()}
        report = dict(report)
    else:
        titles, (first, second, *_) = dict(WORD_TITLES), report.values()
        lines = [f"{first}: {second}"]
    for name, value in report.items():
        section = list(_lines(value)) if titles.get(name) else []
        if name in ("reasons", "remedies", "curedBy", "values"):
            section = [", ".join(section)] if section else []
        if name not in _WHOLE:
            more = len(section) - _MAX_LISTED
            section = [cut(line, _MAX_LINE_CHARACTERS) for line in section[:_MAX_LISTED]]
            section += [f"{more} more; see -o json"] if more > 0 else []
        lines += ["", f"{titles.get(name)}:", *(f"  {line}" for line in section)] if section else []
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
        case AppliedRemedy():
            purpose = f": {value.purpose}" if value.purpose else ""
            yield f"{value.remedy}, by policy {value.policy}{purpose}"
            if value.fields:
                yield f"  sets {', '.join(cut(each, MAX_NAME_CHARACTERS) for each in value.fields)}"
            if value.today:
                yield f"  would not be applied today: {value.today}"
        case LeftOut():
            subject = f"{value.remedy} {value.container}".strip()
            yield f"{subject}: {value.reason}: {value.sentence}"
        case ContainerExplanation():
            kind, changes = "init container" if value.init else "container", " ".join(value.changes)
            yield f"{value.name} ({kind}): {changes or 'podsettle did not change it.'}"
        case FoundSymptom():
            pods = f" in {value.pods} pods" if value.pods > 1 else ""
            for each in value.sentences[:_MAX_LISTED]:
                yield f"{value.symptom}{pods}: {value.certainty}: {cut(each, _MAX_LINE_CHARACTERS)}"
            yield from (f"  {value.advice}", f"  page: {value.page}")
            if value.policy:
                yield "  The proposed policy:"
                yield from (f"    {line}" for line in value.policy.splitlines())
        case PodGroup():
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
        case PolicyNeed():
            need = f"{NEED_PHRASES[value.status]}: {value.message}"
            yield f"{value.remedy}, by policy {value.policy}: {need}"
        case NotRead():
            command = f" To check: {value.command}" if value.command else ""
            yield f"{value.what}: {value.why}.{command}"
