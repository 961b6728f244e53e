"""The text output of `podsettle preview`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from webhook.core.preview.preview import Preview
from webhook.core.printable import printable
from webhook.core.reasons import Outcome

_DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def previews_as_text(previews: Sequence[Preview]) -> str:
    """Return one block for each pod. With several pods, a line for each of them comes first."""
    blocks = [_pod_text(preview) for preview in previews]
    if len(previews) > 1:
        blocks.insert(0, "".join(f"{_overview_line(preview)}\n" for preview in previews))
    return "\n".join(blocks)


def _overview_line(preview: Preview) -> str:
    title = printable(f"{preview.namespace}/{preview.workload.title}")
    return f"{click.style(title, bold=True)}: {printable(preview.decided.summary)}"


def _pod_text(preview: Preview) -> str:
    decision = preview.decision
    title = click.style(printable(preview.workload.title), bold=True)
    policies = f"  policies: {printable(', '.join(decision.policies))}" if decision.policies else ""
    lines = [f"{title} in namespace {printable(preview.namespace)}{policies}"]
    lines.append(f"  {printable(preview.decided.summary)}")
    lines += [f"  {_outcome_text(outcome)}" for outcome in decision.outcomes]
    return "\n".join(lines) + "\n" + colour_diff(preview.diff)


def _outcome_text(outcome: Outcome) -> str:
    """Return `REASON REMEDY CONTAINER: SENTENCE (by POLICY)`, with a colour for the reason."""
    colour = "green" if outcome.changed else "yellow" if outcome.reason.warns else None
    reason = click.style(str(outcome.reason), fg=colour)
    subject = printable(" ".join(filter(None, (outcome.remedy, outcome.container))))
    sentence = printable(outcome.sentence)
    policy = f" (by {printable(outcome.policy)})" if outcome.policy else ""
    return f"{reason} {subject}: {sentence}{policy}" if subject else f"{reason}: {sentence}{policy}"


def colour_diff(diff: str) -> str:
    """Return a unified diff with a colour for each line."""
    return "\n".join(
        click.style(line, fg=_DIFF_COLOURS[line[0]]) if line[:1] in _DIFF_COLOURS else line
        for line in diff.split("\n")
    )
