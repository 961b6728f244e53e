"""The text output of `podsettle preview`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from webhook.cli.echo import Part, Styled
from webhook.core.preview.preview import Preview
from webhook.core.printable import printable
from webhook.core.reasons import Outcome

_DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def previews_as_text(previews: Sequence[Preview]) -> Iterator[Part]:
    """Yield one block for each pod. With several pods, a line for each of them comes first."""
    if len(previews) > 1:
        for preview in previews:
            title = f"{preview.namespace}/{preview.workload.title}"
            yield from _line(Styled(title, bold=True), f": {preview.decided.summary}")
        yield "\n"
    for number, preview in enumerate(previews):
        if number:
            yield "\n"
        yield from _pod_text(preview)


def _line(*parts: Part) -> Iterator[Part]:
    """Yield the parts of a line, in which line breaks of names are escaped."""
    for part in parts:
        if isinstance(part, str):
            yield printable(part)
        else:
            yield part._replace(text=printable(part.text))
    yield "\n"


def _pod_text(preview: Preview) -> Iterator[Part]:
    decided = preview.decided
    policies = f"  policies: {', '.join(decided.policies)}" if decided.policies else ""
    title = Styled(preview.workload.title, bold=True)
    yield from _line(title, f" in namespace {preview.namespace}{policies}")
    yield from _line(f"  {decided.summary}")
    for outcome in decided.outcomes:
        yield from _outcome_line(outcome)
    yield from colour_diff(preview.diff)


def _outcome_line(outcome: Outcome) -> Iterator[Part]:
    """Yield `REASON REMEDY CONTAINER: SENTENCE (by POLICY)`, with a colour for the reason."""
    colour = "green" if outcome.changed else "yellow" if outcome.reason.warns else None
    names = " ".join(filter(None, (outcome.remedy, outcome.container)))
    subject = f" {names}" if names else ""
    policy = f" (by {outcome.policy})" if outcome.policy else ""
    reason = Styled(str(outcome.reason), colour)
    yield from _line("  ", reason, f"{subject}: {outcome.sentence}{policy}")


def colour_diff(diff: str) -> Iterator[Part]:
    """Yield the lines of a unified diff, each with a colour."""
    for number, line in enumerate(diff.split("\n")):
        if number:
            yield "\n"
        yield Styled(line, _DIFF_COLOURS.get(line[:1]))
