"""What podsettle did to a pod, in a sentence for people and in a list of what was left out.

The pod carries both as the annotations ANNOTATION_SUMMARY and ANNOTATION_SKIPPED. Previews give the
same sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from webhook.core.constants import (
    ANNOTATION_SKIPPED,
    ANNOTATION_SUMMARY,
    DNS_LABEL_NAME,
    MAX_NOTE_BYTES,
)
from webhook.core.reasons import Outcome, Reason
from webhook.core.remedies import REMEDIES

_MAX_NAMES = 3
"""The maximum number of containers that a clause names, because people read it in a terminal."""
_CODE = re.compile(r"[A-Za-z0-9]{1,63}", re.ASCII)
"""A remedy or a reason, which may be one of another version of podsettle."""
_TRACEABLE = frozenset(name for name, remedy in REMEDIES.items() if remedy.is_traceable)
_MAX_SKIPPED_CHARACTERS = 2_048
"""The number of characters of ANNOTATION_SKIPPED that are read. podsettle writes fewer, but the
annotation of a pod can be any text."""


class Skipped(NamedTuple):
    """An entry of ANNOTATION_SKIPPED."""

    container: str
    """Empty if the remedy was left out for the whole pod."""
    remedy: str
    reason: str
    """The code of a reason, which may be one of another version of podsettle."""

    @property
    def entry(self) -> str:
        """The text of the entry."""
        subject = f"{self.container}/{self.remedy}" if self.container else self.remedy
        return f"{subject}={self.reason}"


def notes_for(
    outcomes: Sequence[Outcome],
    unmet: Sequence[Outcome],
    applied_before: str,
    docs_url: str | None,
    kept: Sequence[str] = (),
) -> dict[str, str]:
    """Return the annotations for people, in the order in which a patch sets them.

    The outcomes are those of policies with `action: Mutate`. A text is empty if there is nothing to
    say.

    `unmet` is the result of `unmet_outcomes`. `applied_before` is the received annotation
    ANNOTATION_APPLIED. The remedies in it are those of earlier calls, so they are part of the
    summary. `kept` are the entries of ANNOTATION_SKIPPED that stay in front of those of the
    outcomes.

    Each clause of the summary and the address are lines of their own, because `kubectl describe`
    cuts each line of an annotation after 138 characters (kubectl `pkg/describe/describe.go`,
    printAnnotationsMultiline).
    """
    before = frozenset(applied_before.split(","))
    done = [outcome for outcome in outcomes if outcome.changed or _is_earlier(outcome, before)]
    suffix = f"\nWhy: {docs_url}" if docs_url else ""
    clauses = _done_clauses(done, _verb_on_pod)
    skipped = ""
    if unmet:  # Most pods have no such outcome.
        clauses += _unmet_clauses(unmet, done)
        skipped = _skipped_list(unmet, kept)
    max_bytes = MAX_NOTE_BYTES[ANNOTATION_SUMMARY] - len(suffix.encode()) - len(".")
    summary = _fitting(clauses, ";\n", max_bytes, ";\nand {} more")
    text = f"{_sentence(summary)}{suffix}" if summary else ""
    return {ANNOTATION_SUMMARY: text, ANNOTATION_SKIPPED: skipped}


def summary_of(outcomes: Sequence[Outcome]) -> str:
    """Return the outcomes of a decision in one sentence, as long as it takes.

    It differs from the annotation in three points. It includes the policies with `action: Audit`.
    It marks what the pod already had, which may be the work of its author. If nothing is to be done
    about the pod, it gives the reasons.
    """
    done = [outcome for outcome in outcomes if outcome.effect]
    clauses = [*_done_clauses(done, _verb), *_unmet_clauses(unmet_outcomes(outcomes), done)]
    if not clauses:
        reasons = ", ".join(dict.fromkeys(outcome.reason for outcome in outcomes))
        clauses = ["the pod was left as it is" + (f": {reasons}" if reasons else "")]
    return _sentence("; ".join(clauses))


def kept_entries(received: str, container_names: Collection[str]) -> list[str]:
    """Return the entries of a received ANNOTATION_SKIPPED that a replica may have written.

    Entries of containers that the pod does not have, and entries of another form, are omitted.
    """
    return list(
        dict.fromkeys(
            each.entry
            for each in parse_skipped(received)
            if _CODE.fullmatch(each.remedy)
            and _CODE.fullmatch(each.reason)
            and (
                not each.container
                or (each.container in container_names and DNS_LABEL_NAME.fullmatch(each.container))
            )
        )
    )


def parse_skipped(text: str) -> tuple[Skipped, ...]:
    """Return the entries of an annotation ANNOTATION_SKIPPED. Malformed entries are omitted."""
    found = []
    for entry in text[:_MAX_SKIPPED_CHARACTERS].split(","):
        subject, _, reason = entry.strip().partition("=")
        container, _, remedy = subject.rpartition("/")
        if remedy and reason:
            found.append(Skipped(container, remedy, reason))
    return tuple(found)


def _is_earlier(outcome: Outcome, before: frozenset[str]) -> bool:
    """Return whether an earlier call applied a remedy.

    A pod whose author made the same change is AlreadySettled too. The annotation can also be a copy
    from another pod, or of the author's own making.
    """
    return (
        outcome.reason is Reason.ALREADY_SETTLED and f"{outcome.policy}/{outcome.remedy}" in before
    )


def unmet_outcomes(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    """Return the outcomes for remedies that a policy wanted, and the pod could not get."""
    return tuple([each for each in outcomes if each.reason.warns and not each.changed])


def _verb_on_pod(outcome: Outcome) -> str:
    """Return how a note introduces the effect of a remedy.

    ANNOTATION_APPLIED alone does not prove that a policy has set a field.
    """
    return "is" if outcome.changed or outcome.remedy in _TRACEABLE else "is already"


def _verb(outcome: Outcome) -> str:
    """Return how a preview introduces the effect of a remedy."""
    if outcome.reason is Reason.WOULD_APPLY:
        return "would be"
    return "is" if outcome.changed else "is already"


def _done_clauses(outcomes: Iterable[Outcome], verb_of: Callable[[Outcome], str]) -> list[str]:
    """Return clauses such as `prepare is put under RuntimeClass kata, by policy p`."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for outcome in outcomes:
        verb, reason = verb_of(outcome), outcome.reason
        # The author of a pod may have made the change, not a policy.
        policy = "" if verb == "is already" else outcome.policy
        key = verb, outcome.effect, policy, reason if reason.warns else ""
        groups.setdefault(key, []).append(outcome.container)
    clauses = []
    for (verb, effect, policy, warning), names in groups.items():
        if _is_plural(names):
            verb = verb.replace("is", "are")
        clause = f"{_subject(names)} {verb} {effect}"
        if policy:
            clause += f", by policy {policy}"
        clauses.append(f"{clause}, without effect: {warning}" if warning else clause)
    return clauses


def _unmet_clauses(unmet: Iterable[Outcome], done: Sequence[Outcome]) -> Iterator[str]:
    """Yield a clause such as `plugin was left as it is: NoCommand`.

    A pod or container with another remedy is not as it was, so the clause names the remedy. A
    remedy that the pod has nevertheless was applied in part.
    """
    groups: dict[tuple[str, Reason], list[str]] = {}
    for outcome in unmet:
        groups.setdefault((outcome.remedy, outcome.reason), []).append(outcome.container)
    changed_names = {outcome.container for outcome in done}
    remedies_of_pod = {outcome.remedy for outcome in done if not outcome.container}
    reasons: dict[str, dict[str, None]] = {}
    for (remedy, reason), names in groups.items():
        if "" in names:
            if not done:
                what = "the pod was left as it is"
            elif remedy in remedies_of_pod:
                what = f"{remedy} was applied in part"
            elif remedy:
                what = f"{remedy} was left out"
            else:
                continue  # The reason is not about the remedies, such as UnknownRemedy.
        elif changed_names.isdisjoint(names):
            are = "were left as they are" if _is_plural(names) else "was left as it is"
            what = f"{_subject(names)} {are}"
        else:
            what = f"{remedy} was left out for {_subject(names)}"
        # Two remedies can have the same reason.
        reasons.setdefault(what, {})[reason] = None
    for what, codes in reasons.items():
        yield f"{what}: {', '.join(codes)}"


def _subject(names: Sequence[str]) -> str:
    """Return the containers in words. An empty name stands for the pod.

    A name that the API server would refuse is counted, but not quoted: it can be a megabyte long.
    """
    if "" in names:
        return "the pod"
    listed = list(islice(filter(DNS_LABEL_NAME.fullmatch, names), _MAX_NAMES))
    left = len(names) - len(listed)
    if not listed:
        return f"{left} container" + ("s" if left > 1 else "")
    *first, last = [*listed, f"{left} more"] if left else listed
    return f"{', '.join(first)} and {last}" if first else last


def _is_plural(names: Sequence[str]) -> bool:
    return len(names) > 1 and "" not in names


def _skipped_list(unmet: Iterable[Outcome], kept: Iterable[str]) -> str:
    """Return the annotation ANNOTATION_SKIPPED: the entries in `kept`, then those of outcomes.

    A remedy and container in `kept` get no second entry. The reason can change without another
    edit: a remedy in conflict with one of the same call finds its field preset in the next call.

    A container without a valid name is only counted, because its name may contain a separator.
    """
    entries, unnamed = dict.fromkeys(kept), 0
    told = {entry.partition("=")[0] for entry in entries}
    for outcome in unmet:
        if outcome.container and not DNS_LABEL_NAME.fullmatch(outcome.container):
            unnamed += 1
            continue
        entry = Skipped(outcome.container, outcome.remedy, outcome.reason).entry
        if entry.partition("=")[0] not in told:
            entries[entry] = None
    return _fitting(
        [*entries], ",", MAX_NOTE_BYTES[ANNOTATION_SKIPPED], ",+{}", already_left=unnamed
    )


def _fitting(
    parts: Sequence[str],
    separator: str,
    max_bytes: int,
    rest: str,
    already_left: int = 0,
) -> str:
    """Return as many whole parts as fit into a number of bytes, and what stands for the rest.

    `rest` is the format of a text for the number of omitted parts. `already_left` parts are omitted
    anyway.
    """
    whole = separator.join(parts)
    if already_left:
        whole = f"{whole}{rest.format(already_left)}".removeprefix(separator)
    if len(whole.encode()) <= max_bytes:
        return whole
    text, left = "", len(parts) + already_left
    for part in parts:
        longer = f"{text}{separator}{part}"
        if len(f"{longer}{rest.format(left - 1)}".encode()) > max_bytes:
            break
        text, left = longer, left - 1
    return f"{text}{rest.format(left)}".removeprefix(separator)


def _sentence(clauses: str) -> str:
    """Return clauses as a sentence. The name of a container stays in lower case."""
    return f"{'The' + clauses[3:] if clauses.startswith('the ') else clauses}."
