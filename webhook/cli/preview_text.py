"""The text output of `podsettle preview`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import Any

from webhook.cli.echo import Styled, echo
from webhook.core.constants import LABEL_NAMESPACE_NAME, LABEL_POLICY
from webhook.core.policy.policy_matches import MAX_MATCHES
from webhook.core.policy.selectors import LabelSelector, first_unmet, unmet_requirements
from webhook.core.preview.pod_decider import PodDecision
from webhook.core.preview.preview import Preview
from webhook.core.printable import count_of
from webhook.core.reasons import Reason

_COMMAND = re.compile(r"/spec/(initContainers|containers)/\d+/command")
_FIELD = re.compile(r"/spec/(?:securityContext/|initContainers/\d+/)?([A-Za-z]+)")
"""A field of the pod's spec, of its security context, or of an init container."""
_COUNTED = frozenset(
    ("initContainers", "volumes", "command", "args", "volumeMounts", "restartPolicy")
)
"""The fields that the gain counts, or that go with what it names."""
PRICES = {
    "Shell": ("nothing measurable", "+0.9 to 2.9 s"),
    "ImageVolume": ("about +1 s", "+1.6 to 3.3 s"),
    "Binary": ("about +2 s", "+2.7 to 4.5 s"),
}
"""How much later pods with one and three quick init containers started, before and from Kubernetes
1.36 on, by the delivery of the wrapper (docs/exit-255.md, "Price")."""
_PRICED, _MAX_PRICED = "500 ms", 3
"""The minimum lifetime and the number of init containers for which the price was measured."""
_IMAGE_VOLUME = "image volume"
_DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def print_previews(previews: Sequence[Preview]) -> None:
    """Print a block for each pod. With several pods, a line for each of them comes first."""
    several = len(previews) > 1
    for preview in previews if several else ():
        title = Styled(f"{preview.decided.namespace}/{preview.workload.title}", bold=True)
        echo(title, f": {preview.decided.summary}")
    for preview in previews:
        if several:
            echo()
        decided = preview.decided
        policies = f"  policies: {', '.join(decided.policies)}" if decided.policies else ""
        title = Styled(preview.workload.title, bold=True)
        echo(title, f" in namespace {preview.decided.namespace}{policies}")
        echo(f"  {decided.summary}")
        for outcome in decided.outcomes:
            colour = "green" if outcome.changed else "yellow" if outcome.reason.warns else None
            subject = "".join(f" {name}" for name in (outcome.remedy, outcome.container) if name)
            policy = f" (by {outcome.policy})" if outcome.policy else ""
            reason = Styled(str(outcome.reason), colour)
            echo("  ", reason, f"{subject}: {outcome.sentence}{policy}")
        for line in filter(None, (near_miss(decided), gain(preview))):
            echo(f"  {line}")
        print_diff(preview.diff)


def print_diff(diff: str) -> None:
    """Print the lines of a unified diff, each with a colour."""
    for line in diff.removesuffix("\n").split("\n") if diff else ():
        echo(Styled(line, _DIFF_COLOURS.get(line[:1])))


def near_miss(decided: PodDecision) -> str:
    """Return the first policy that would cover a pod but for one label of its namespace.

    Empty if a policy covers the pod, or if there is no such policy among the first ones.
    """
    seen, labels = decided.namespace_seen, decided.labels
    uncovered = any(outcome.reason is Reason.NO_POLICY for outcome in decided.outcomes)
    if seen is None or labels is None or not uncovered:
        return ""
    for policy in islice(decided.all_policies.by_precedence, MAX_MATCHES):
        name, selector = policy.metadata.name, policy.spec.namespace_selector
        if first_unmet(policy.spec.pod_selector, labels):
            continue
        if selector is None:
            selector = LabelSelector.model_validate({"matchLabels": {LABEL_POLICY: name}})
        unmet = list(unmet_requirements(selector, seen.labels))
        if len(unmet) == 1 and LABEL_NAMESPACE_NAME not in unmet[0]:
            return f"near miss: policy {name} would cover it, but namespace {seen.name} {unmet[0]}"
    return ""


def gain(preview: Preview) -> str:
    """Return what the patch adds to a pod, in one line, and what that costs if it was measured.

    Empty if the patch changes nothing but annotations.
    """
    added: dict[str, int] = {"init container": 0}
    fields, commands = [], 0
    for operation in preview.operations:
        path: str = operation["path"]
        value: Any = operation.get("value")
        if path.startswith("/spec/initContainers") and path.count("/") < 4:
            added["init container"] += len(value) if isinstance(value, list) else 1
        elif path.startswith("/spec/volumes"):
            for volume in value if isinstance(value, list) else [value]:
                size = volume.get("emptyDir", {}).get("sizeLimit", "").replace("Mi", " MiB")
                kind = f"tmpfs of {size}" if size else _IMAGE_VOLUME
                added[kind] = added.get(kind, 0) + 1
        elif _COMMAND.fullmatch(path):
            commands += 1
        elif (match := _FIELD.fullmatch(path)) and match[1] not in _COUNTED:
            fields.append(match[1])
    counts = [count_of(count, noun) for noun, count in added.items() if count]
    clauses = [f"adds {', '.join(counts)}"] if counts else []
    clauses += [f"changes {count_of(commands, 'command')}"] if commands else []
    clauses += [f"sets {', '.join(dict.fromkeys(fields))}"] if fields else []
    return "; ".join(filter(None, (", ".join(clauses), _price(preview, added))))


def _price(preview: Preview, added: dict[str, int]) -> str:
    """Return how much later a pod starts. Empty if no such pod was measured."""
    inits = {each.get("name") for each in preview.workload.pod["spec"].get("initContainers") or ()}
    changes = [outcome for outcome in preview.decided.outcomes if outcome.changed]
    if not 0 < len(changes) <= _MAX_PRICED or not all(
        each.remedy == "postInitSleep" and each.container in inits and _PRICED in each.effect
        for each in changes
    ):
        return ""
    delivery = "Binary" if added["init container"] else "Shell"
    before, after = PRICES["ImageVolume" if _IMAGE_VOLUME in added else delivery]
    return f"{before} before Kubernetes 1.36, {after} from 1.36 on"
