"""The annotations of a settled pod, as CEL expressions.

The API server runs several native policies in no defined order. Each adds to what the others wrote,
and sorts the whole by the order of the remedies. So the pod has the annotations that the webhook
would have written for all policies together.

ANNOTATION_SETTLED is not written: with it, the API server would not call podsettle's cluster
webhooks (`not-settled`), which add the remedies that are not native.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from webhook.core.cel import quote, quoted_list
from webhook.core.constants import (
    ANNOTATION_APPLIED,
    ANNOTATION_SUMMARY,
    MAX_NOTE_BYTES,
)
from webhook.core.remedies import REMEDIES
from webhook.core.remedies.native import Native, NativeRemedy, set_annotation

_PHRASES = {
    name: remedy.native.phrase
    for name, remedy in REMEDIES.items()
    if isinstance(remedy.native, Native)
}


class NativeStep(NamedTuple):
    """A remedy of a policy in CEL. The policy has a variable of its name, which says if it acts."""

    policy: str
    remedy: str
    effect: str
    """What the remedy does with the policy's settings (`Remedy.effect`)."""
    form: NativeRemedy

    @property
    def clause(self) -> str:
        """The clause of the summary, as an expression."""
        clause, warning = f"the pod is {self.effect}, by policy {self.policy}", self.form.warning
        if not warning:
            return quote(clause)
        variable = f"variables.{self.remedy}Warning"
        return f'{quote(clause)} + ({variable} == "" ? "" : ", without effect: " + {variable})'


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
    """Return the variables of the annotations that the pod gets."""
    now = (if_acting(step, f"[{quote(f'{step.policy}/{step.remedy}')}]", steps) for step in steps)
    clauses = (if_acting(step, f"[{step.clause}]", steps) for step in steps)
    replaced = " || ".join(
        f"(variables.{step.remedy} && clause.contains({quote(_PHRASES[step.remedy])}))"
        for step in steps
    )
    return {
        "remedies": quoted_list(_PHRASES),
        "phrases": quoted_list(_PHRASES.values()),
        "appliedNow": "\n+ ".join(now),
        "allApplied": "variables.appliedBefore\n"
        "+ variables.appliedNow.filter(entry, !(entry in variables.appliedBefore))",
        "applied": _sorted("allApplied", "entry", "remedies", 'entry.endsWith("/" + part)', ","),
        "allClauses": f"variables.clausesBefore.filter(clause, !({replaced}))\n+ "
        + "\n+ ".join(clauses),
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


def annotation_patch() -> Iterator[str]:
    """Yield the lists of JSONPatch that write the annotations."""
    yield set_annotation(ANNOTATION_APPLIED, "variables.applied")
    summary = set_annotation(ANNOTATION_SUMMARY, "variables.summary")
    max_bytes = MAX_NOTE_BYTES[ANNOTATION_SUMMARY]
    yield f"(size(bytes(variables.summary)) <= {max_bytes} ? {summary} : [])"
