"""Explanations as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from webhook.core.policy.policy_matches import Verdict
from webhook.core.preview.model import PodPreview, PreviewOutcome
from webhook.core.printable import cut, printable
from webhook.inspect.explain.model import (
    Called,
    ContainerExplanation,
    EventNote,
    LeftOut,
    NodeNeed,
    PodExplanation,
    PodSymptom,
    ReasonExplanation,
    RemedyExplanation,
    Unknown,
    WorkloadExplanation,
)
from webhook.inspect.objects import MAX_NAME_CHARACTERS

Explanation: TypeAlias = (
    PodExplanation | WorkloadExplanation | ReasonExplanation | RemedyExplanation
)

_MAX_LISTED = 50
"""The maximum number of lines in a section, because people read them in a terminal."""
_MAX_LINE_CHARACTERS = 500
"""The maximum length of a line in a section, unless it ends with a command. Lines about real pods
have at most 300 characters, but tenants write names, annotations and messages. JSON has all of it.
"""


def as_text(explanation: Explanation) -> str:
    """Return an explanation as lines, each with a line break.

    The lines contain no control characters, because a terminal would execute them.
    """
    if isinstance(explanation, PodExplanation):
        lines = _pod_lines(explanation)
    elif isinstance(explanation, WorkloadExplanation):
        lines = _workload_lines(explanation)
    elif isinstance(explanation, RemedyExplanation):
        lines = _remedy_lines(explanation)
    else:
        lines = _reason_lines(explanation)
    return "".join(f"{printable(line)}\n" for line in lines)


def _pod_lines(pod: PodExplanation) -> Iterator[str]:
    yield _title("Pod", pod.name, pod.namespace, pod.verdict)
    yield from _section("The pod says", pod.summary.splitlines())
    yield from _section("Applied", _applied_lines(pod))
    yield from _section("Left out", _left_out_lines(pod.left_out))
    yield from _section("Containers", map(_container_line, pod.containers))
    yield from _section("Events", map(_event_line, pod.events))
    for symptom in pod.symptoms:
        yield from _section(f"Symptom {symptom.symptom}", _symptom_lines(symptom))
    yield from _section("Notes", pod.notes)
    yield from _section("A new pod like this one", _today_lines(pod.today, pod.called))
    needs = map(_need_line, pod.nodes)
    yield from _section("Nodes", [*needs, *([pod.node] if pod.node else [])])
    yield from _section("Not known", map(_unknown_line, pod.unknown), have_commands=True)
    yield from _section("What you can do", pod.advice)


def _workload_lines(workload: WorkloadExplanation) -> Iterator[str]:
    yield _title(workload.kind, workload.name, workload.namespace, workload.verdict)
    yield from _section("Notes", workload.notes)
    yield from _section("The next pod", _today_lines(workload.today, workload.called))
    yield from _section(
        "Its pods",
        (f"{each.count} (such as {each.examples[0]}): {each.state}" for each in workload.pods),
    )
    yield from _section("Events", map(_event_line, workload.events))
    yield from _section("Nodes", map(_need_line, workload.nodes))
    yield from _section("Not known", map(_unknown_line, workload.unknown), have_commands=True)
    yield from _section("What you can do", workload.advice, have_commands=True)


def _reason_lines(reason: ReasonExplanation) -> Iterator[str]:
    yield f"{reason.reason}: {reason.meaning}"
    if reason.remedies:
        yield f"Remedies that give it: {', '.join(reason.remedies)}."
    yield f"Does kubectl warn? {'Yes' if reason.warns else 'No'}."
    yield f"What you can do: {reason.advice}"
    if reason.explanation:
        yield f"More: {reason.explanation}"


def _remedy_lines(remedy: RemedyExplanation) -> Iterator[str]:
    yield f"{remedy.remedy}: {remedy.description}"
    yield from _section("For", (f"{each.title} ({each.id})" for each in remedy.defects))
    yield from _section("Better than the remedy", (each.advice for each in remedy.defects))
    if remedy.node_configuration:
        yield from _section("First", [f"configure the nodes: {remedy.node_configuration}"])
    yield from _section(
        "Settings", (f"{each.name}: {each.description}" for each in remedy.settings)
    )
    yield from _section("Values", remedy.values)
    reasons = [", ".join(remedy.reasons), "What one means: podsettle explain REASON"]
    yield from _section("Reasons that it gives", reasons if remedy.reasons else [])


def _title(kind: str, name: str, namespace: str, verdict: str) -> str:
    name, namespace = cut(name, MAX_NAME_CHARACTERS), cut(namespace, MAX_NAME_CHARACTERS)
    return f"{kind} {name} in namespace {namespace}: {cut(verdict, _MAX_LINE_CHARACTERS)}"


def _section(title: str, lines: Iterable[str], *, have_commands: bool = False) -> Iterator[str]:
    """Yield a title with its lines. Yield nothing without lines.

    Lines that `have_commands` are not cut.
    """
    listed = list(lines)
    if not listed:
        return
    yield ""
    yield f"{title}:"
    for line in listed[:_MAX_LISTED]:
        yield f"  {line if have_commands else cut(line, _MAX_LINE_CHARACTERS)}"
    if len(listed) > _MAX_LISTED:
        yield f"  {len(listed) - _MAX_LISTED} more; see -o json"


def _applied_lines(pod: PodExplanation) -> Iterator[str]:
    for each in pod.applied:
        purpose = f": {each.purpose}" if each.purpose else ""
        yield f"{each.remedy}, by policy {each.policy}{purpose}"
        if each.fields:
            yield f"  sets {', '.join(cut(field, MAX_NAME_CHARACTERS) for field in each.fields)}"
        if each.today:
            yield f"  would not be applied today: {each.today}"


def _symptom_lines(symptom: PodSymptom) -> Iterator[str]:
    yield from (f"{symptom.certainty}: {sentence}" for sentence in symptom.sentences)
    yield symptom.advice
    yield f"page: {symptom.page}"
    if symptom.policy:
        yield "The proposed policy:"
        yield from (f"  {line}" for line in symptom.policy.splitlines())


def _left_out_lines(left_out: Iterable[LeftOut]) -> Iterator[str]:
    """Yield one line for the remedies that one reason keeps from one container, or from the pod."""
    groups: dict[tuple[str, str, str], dict[str, None]] = {}
    for each in left_out:
        key = each.container, each.reason, each.sentence
        groups.setdefault(key, {})[each.remedy] = None
    for (container, reason, sentence), remedies in groups.items():
        subject = " ".join(filter(None, (", ".join(remedies), container)))
        yield f"{subject}: {reason}: {sentence}"


def _container_line(container: ContainerExplanation) -> str:
    kind = "init container" if container.init else "container"
    parts = list(container.changes)
    if container.left_out:
        remedies: dict[str, dict[str, None]] = {}
        for each in container.left_out:
            remedies.setdefault(each.reason, {})[each.remedy] = None
        reasons = [f"{reason} ({', '.join(names)})" for reason, names in remedies.items()]
        parts.append(f"Left as it was: {', '.join(reasons)}.")
    return f"{container.name} ({kind}): {' '.join(parts) or 'podsettle did not change it.'}"


def _event_line(event: EventNote) -> str:
    return f"{event.about}: {event.reason}: {event.message}"


def _today_lines(today: PodPreview | None, called: Called | None) -> Iterator[str]:
    """Yield the decision of today, one line for each outcome."""
    if today is None:
        return
    if called == "False":
        yield "If the API server called podsettle, podsettle would decide:"
    if today.summary:
        yield today.summary
    yield from map(outcome_line, today.outcomes)
    if not any(match.verdict is Verdict.ACTS for match in today.policy_matches):
        for match in today.policy_matches:
            if match.verdict is Verdict.NOT_MATCHED:
                yield f"policy {match.policy} does not cover the pod: {match.why}"
    yield from today.notes


def outcome_line(outcome: PreviewOutcome) -> str:
    """Return `REASON REMEDY CONTAINER: SENTENCE (by POLICY)`, as `podsettle preview` prints it."""
    subject = " ".join(filter(None, (str(outcome.reason), outcome.remedy, outcome.container)))
    by = f" (by {outcome.policy})" if outcome.policy else ""
    return f"{subject}: {outcome.message}{by}"


def _need_line(need: NodeNeed) -> str:
    answer = {"True": "still needed", "False": "no longer needed", "Unknown": "not known"}
    return f"{need.remedy}, by policy {need.policy}: {answer[need.still_needed]}. {need.sentence}"


def _unknown_line(unknown: Unknown) -> str:
    command = f" To check: {unknown.command}" if unknown.command else ""
    return f"{unknown.what}: {unknown.why}.{command}"
