"""The annotations of a settled pod, as CEL expressions.

The API server runs several native policies in no defined order. Each adds to what the others wrote,
and sorts the whole by the order of the remedies. So the pod has the annotations that the webhook
would have written for all policies together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from webhook.core.cel import quote, quoted_list
from webhook.core.constants import (
    ANNOTATION_APPLIED,
    ANNOTATION_SETTLED,
    ANNOTATION_SUMMARY,
    MAX_NOTE_BYTES,
)
from webhook.core.policy.cluster_webhooks import SETTLED_FINGERPRINT
from webhook.core.remedies import REMEDIES
from webhook.core.remedies.native import Native, NativeRemedy, set_annotation

_MAX_SUMMARY_BYTES = MAX_NOTE_BYTES[ANNOTATION_SUMMARY] - len(ANNOTATION_SUMMARY)
_NATIVE = {
    name: remedy.native.phrase
    for name, remedy in REMEDIES.items()
    if isinstance(remedy.native, Native)
}


class NativeStep(NamedTuple):
    """A remedy of a policy in CEL."""

    policy: str
    remedy: str
    effect: str
    """What the remedy does with the policy's settings (`Remedy.effect`)."""
    form: NativeRemedy

    @property
    def entry(self) -> str:
        """The entry of ANNOTATION_APPLIED, as a CEL string."""
        return quote(f"{self.policy}/{self.remedy}")


def received_variables() -> dict[str, str]:
    """Return the variables about the annotations that the pod has."""
    applied, summary = (
        f'object.metadata.?annotations[?"{key}"].orValue("")'
        for key in (ANNOTATION_APPLIED, ANNOTATION_SUMMARY)
    )
    return {
        "appliedBefore": f'{applied}.split(",").filter(entry, entry != "")',
        "clausesBefore": f"size(variables.appliedBefore) == 0 ? [] : {summary}\n"
        '.split(".\\nWhy: ")[0].split(";\\n").filter(clause, clause != "")\n'
        '.map(clause, clause.endsWith(".") ? clause.substring(0, size(clause) - 1) : clause)\n'
        '.map(clause, clause.startsWith("The ") ? "the" + clause.substring(3) : clause)',
    }


def written_variables(steps: Sequence[NativeStep]) -> dict[str, str]:
    """Return the variables of the annotations that the pod gets.

    They read the variable of each step, which has the remedy's name.
    """
    now = "\n+ ".join(if_acting(step, f"[{step.entry}]", steps) for step in steps)
    clauses = "\n+ ".join(if_acting(step, f"[{_clause(step)}]", steps) for step in steps)
    replaced = " || ".join(
        f"(variables.{step.remedy} && clause.contains({quote(_NATIVE[step.remedy])}))"
        for step in steps
    )
    return {
        "remedies": quoted_list(_NATIVE),
        "phrases": quoted_list(_NATIVE.values()),
        "appliedNow": now,
        "allApplied": "variables.appliedBefore\n"
        "+ variables.appliedNow.filter(entry, !(entry in variables.appliedBefore))",
        "applied": _sorted("allApplied", "entry", "remedies", 'entry.endsWith("/" + part)', ","),
        "allClauses": f"variables.clausesBefore.filter(clause, !({replaced}))\n+ {clauses}",
        "clauses": _sorted("allClauses", "clause", "phrases", "clause.contains(part)", ";\\n"),
        "summary": '(variables.clauses.startsWith("the ")'
        ' ? "The" + variables.clauses.substring(3) : variables.clauses) + "."',
    }


def if_acting(step: NativeStep, items: str, steps: Sequence[NativeStep]) -> str:
    """Return a list that is empty unless a remedy acts.

    If it is the only one of its policy, the expression is not evaluated unless it acts.
    """
    return items if len(steps) == 1 else f"(variables.{step.remedy} ? {items} : [])"


def _sorted(items: str, item: str, parts: str, test: str, separator: str) -> str:
    """Return texts in the order of the parts that they contain, as one text. Others come first."""
    join = f'.join("{separator}")'
    return (
        f"([variables.{items}.filter({item}, !variables.{parts}.exists(part, {test})){join}]\n"
        f"+ variables.{parts}.map(part, variables.{items}.filter({item}, {test}){join}))\n"
        f'.filter(text, text != ""){join}'
    )


def _clause(step: NativeStep) -> str:
    """Return the clause of the summary about one remedy, as an expression."""
    what = f" {step.effect}, by policy {step.policy}"
    if step.form.containers:
        clause = f"variables.{step.remedy}Subject + {quote(what)}"
    else:
        clause = quote(f"the pod is{what}")
    if step.form.warning:
        warning = f"variables.{step.remedy}Warning"
        clause += f' + ({warning} == "" ? "" : ", without effect: " + {warning})'
    return clause


def subject_of(names: str) -> str:
    """Return the subject and the verb of a clause about containers. `names` is a variable."""
    return (
        f'size({names}) == 1 ? {names}[0] + " is"\n'
        f': size({names}) == 2 ? {names}[0] + " and " + {names}[1] + " are"\n'
        f': {names}[0] + ", " + {names}[1] + (size({names}) == 3 ? " and " + {names}[2]\n'
        f'  : ", " + {names}[2] + " and " + string(size({names}) - 3) + " more") + " are"'
    )


def annotation_patch() -> Iterator[str]:
    """Yield the lists of JSONPatch that write the annotations."""
    yield set_annotation(ANNOTATION_APPLIED, "variables.applied")
    yield set_annotation(ANNOTATION_SETTLED, SETTLED_FINGERPRINT)
    summary = set_annotation(ANNOTATION_SUMMARY, "variables.summary")
    yield f"(size(bytes(variables.summary)) <= {_MAX_SUMMARY_BYTES} ? {summary} : [])"
