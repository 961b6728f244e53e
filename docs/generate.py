"""The generator of reference pages and schemas: `python -m docs.generate`, which `make docs` runs.

The prose of the pages is written by hand. A test compares the files with the output of this module.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import click
import yaml

from webhook.cli import main
from webhook.cluster.source import Check
from webhook.core.admission.decision import Decision
from webhook.core.constants import API_VERSION, KIND
from webhook.core.defects.catalogue import DEFECTS
from webhook.core.defects.defect import Affected, Defect
from webhook.core.defects.versions import Version
from webhook.core.patch.edits import Edit
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.crd import crd, editor_schema
from webhook.core.policy.model import parse_policy
from webhook.core.policy.snapshot import Snapshot
from webhook.core.reasons import Outcome, Reason
from webhook.core.remedies import REMEDIES
from webhook.inspect.explain.target import explain_word
from webhook.server.metrics import Metrics

Json: TypeAlias = dict[str, Any]

DOCS = Path(__file__).parent
CHART = DOCS.parent / "charts" / "podsettle"
BEGIN = "<!-- docs/generate.py writes what follows, up to the last line. -->"
_LAST = "\n\n**Read next:**"
_TYPES = {
    "array": "list",
    "boolean": "boolean",
    "integer": "whole number",
    "object": "mapping",
    "string": "string",
}
_COMPONENTS = {"cri-o": "CRI-O", "any runtime": "other runtimes"}
_MAX_COPIES = 5
"""An option of more commands stands once on the page of the commands."""


def policy_rows(schema: Json, prefix: str = "") -> Iterator[str]:
    """Yield the rows of the keys in a schema of the CRD, and of the keys inside them."""
    for name, field in schema.get("properties", {}).items():
        default = "required" if name in schema.get("required", ()) else "left out"
        if "default" in field and "properties" not in field:
            value = field["default"]
            default = _code(value if isinstance(value, str) and value else json.dumps(value))
        yield _row(_code(f"{prefix}{name}"), _type_of(field), default, field["description"])
        if name == "podSelector":  # It has the keys of the selector before it.
            continue
        yield from policy_rows(field, f"{prefix}{name}.")
        yield from policy_rows(field.get("items", {}), f"{prefix}{name}[].")


def _type_of(field: Json) -> str:
    """Return the text for a field in the column "type"."""
    if "enum" in field:
        return " | ".join(f"`{value}`" for value in field["enum"])
    for rule in field.get("x-kubernetes-validations", ()):
        if found := re.match(r"is longer than (\w+), ", rule["message"]):
            return f"duration, at most `{found[1]}`"
    return _TYPES[field["type"]]


def remedy_rows() -> Iterator[str]:
    """Yield the rows of the table of remedies."""
    for name, remedy in REMEDIES.items():
        fields = ", ".join(f"`{path[1:].replace('/', '.')}`" for path in sorted(remedy.fields))
        effects = [edit.effect for edit in Edit if edit in remedy.edits]
        effects = [f"sets {fields}"] * bool(fields) + effects
        faults = [f"[{each.id}]({each.page})" for each in DEFECTS if name in each.remedies]
        yield _row(f"`{name}`", *map("; ".join, (effects, faults)))


def reason_lines() -> Iterator[str]:
    """Yield a section for each reason. Answers to previews link to their anchors."""
    for reason in Reason:
        warns = " `kubectl` warns." if reason.warns else ""
        advice = explain_word(reason)["advice"]
        todo = "" if advice == "Nothing." else f" **What you can do:** {advice}"
        yield from (f"### {reason}", "", f"{reason.meaning}{warns}{todo}", "")


def metric_rows() -> Iterator[str]:
    """Yield the rows of the table of metrics."""
    for family in example_metrics().registry.collect():
        suffix = "_total" if family.type == "counter" else ""
        # `le` is part of each histogram, and not a label that podsettle chooses.
        labels = [f"`{label}`" for label in family.samples[0].labels if label != "le"]
        yield _row(f"`{family.name}{suffix}`", ", ".join(labels) or "none", family.documentation)


def example_metrics() -> Metrics:
    """Return metrics in which each metric has a sample, because only samples show the labels."""
    metrics = Metrics("0")
    metrics.count_refused(400)
    metrics.count_preview("answered")
    metrics.set_checks([Check("shutdown", ready=True)])
    settled = Outcome(Reason.APPLIED, "postInitSleep", "policy", changed=True)
    metrics.reviews.count(Decision((settled,), patch=b"W10="), 0.001)
    spec: Json = {"remedies": {"postInitSleep": {}}}
    policy = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "policy"}, "spec": spec}
    view = Snapshot(policies=PolicySet([parse_policy(policy)]))
    asyncio.run(metrics.needed_policies.refresh(view))
    return metrics


def command_lines() -> Iterator[str]:
    """Yield a section for each command, after the options that most of them have."""
    commands = list(_commands(main, "podsettle"))
    options = [option for *_, own in commands for option in own]
    shared = [each for each in dict.fromkeys(options) if options.count(each) > _MAX_COPIES]
    yield from (inspect.cleandoc(main.help or ""), "")
    yield from ("## Options of most commands", "", *shared, "")
    for title, text, own in commands:
        yield from (f"## {title}", "", "```", text, "```", "")
        yield from (option for option in own if option not in shared)
        yield ""


def _commands(group: click.Group, path: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the name, the help and the options of each command. Those of a group follow it."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None, name
        title = f"{path} {name}"
        context = click.Context(
            command, info_name=title, terminal_width=100, **main.context_settings
        )
        text = re.split(r"\n\n(?:Options|Commands):\n", command.get_help(context))[0]
        records = [option.get_help_record(context) for option in command.get_params(context)]
        yield title, text, [f"- `{each[0]}`: {each[1]}" for each in records if each and each[1]]
        if isinstance(command, click.Group):
            yield from _commands(command, title)


def defect_lines(defect: Defect) -> Iterator[str]:
    """Yield the section of a defect. The page of the fault has its cause, its cure and evidence."""
    yield from (f"## {defect.title}", "", "```")
    yield from (symptom.message for symptom in defect.symptom)
    yield from ("```", "")
    yield from ("| component | affected | fixed in | newest known |", "|---|---|---|---|")
    for entry in defect.affected:
        newest = _line(entry.newest) if entry.newest else "–"
        fixes = ", ".join(f"[{fix.release}]({fix.link})" for fix in entry.fixed) or "–"
        yield _row(component_name(entry), affected_releases(entry), fixes, newest)
    yield ""
    if defect.requires:
        yield f"- **Only with** {defect.requires}, which no Node shows."
    if defect.invisible:
        yield f"- **`podsettle scan` cannot see it**: {defect.invisible}."
    if defect.partly:
        release = f"[Kubernetes {_line(defect.partly.kubelet)}]({defect.partly.link})"
        yield f"- **From {release} on**, a part of it is left: {defect.partly.message}."
    remedies = ", ".join(map(_code, defect.remedies)) or "podsettle has none"
    yield f"- **Remedy**: {remedies}"
    yield f"- **More**: [{defect.page}]({defect.page})"
    yield ""


def component_name(entry: Affected) -> str:
    """Return the name of the component in sentences."""
    return _COMPONENTS.get(entry.component, entry.component)


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


def _line(version: Version) -> str:
    return f"{version.major}.{version.minor}"


def chart_rows(lines: list[str], node: Any, prefix: str = "") -> Iterator[str]:
    """Yield the row of each value of the chart, from its comment in values.yaml.

    `lines` are those of the file, and `node` is its YAML node. Raises ValueError for a value that
    has no comment in the line above it.
    """
    for key, value in node.value:
        path = f"{prefix}{key.value}"
        comment = lines[key.start_mark.line - 1].strip()
        if comment.startswith("# "):
            default = json.dumps(yaml.safe_load(yaml.serialize(value)))
            yield _row(f"`{path}`", f"`{default}`", comment.removeprefix("# "))
        elif isinstance(value, yaml.MappingNode) and value.value:
            # A group of values needs no comment, because each of its keys has one.
            yield from chart_rows(lines, value, f"{path}.")
        else:
            raise ValueError(f"{CHART.name}/values.yaml: {path} has no comment")


def _row(*cells: str) -> str:
    escaped = (cell.replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def _code(text: str) -> str:
    return f"`{text}`"


def fill(page: Path, *parts: tuple[str, Iterable[str]]) -> str:
    """Return a page with generated parts. Each is named by the line in front of it.

    That line is the head of a table, whose rows are replaced, or `BEGIN`.
    """
    text = page.read_text(encoding="utf-8")
    for first, lines in parts:
        before, found, after = text.partition(f"{first}\n")
        if not found:
            raise ValueError(f"{page.name}: has no line {first}")
        rule, _, after = after.partition("\n")
        last = _LAST if first == BEGIN else "\n\n"
        new = "\n".join(lines).rstrip()
        text = f"{before}{found}{rule}\n{new}{last}{after.partition(last)[2]}"
    return text


def generated() -> Mapping[Path, str]:
    """Return the text of each file that has a generated part."""
    spec = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    values = (CHART / "values.yaml").read_text(encoding="utf-8")
    defects = (line for defect in DEFECTS for line in defect_lines(defect))
    parts: dict[Path, list[tuple[str, Iterable[str]]]] = {
        DOCS / "policy.md": [
            ("| key of `spec` | type | default | meaning |", policy_rows(spec)),
            ("| remedy | what it can change | the fault |", remedy_rows()),
        ],
        DOCS / "reasons.md": [(BEGIN, reason_lines())],
        DOCS / "commands.md": [(BEGIN, command_lines())],
        DOCS / "defects.md": [(BEGIN, defects)],
        DOCS / "metrics.md": [("| metric | labels | meaning |", metric_rows())],
        CHART / "README.md": [
            (
                "| value | default | meaning |",
                chart_rows(values.splitlines(), yaml.compose(values)),
            )
        ],
    }
    notice = "# Written by docs/generate.py from the code: change that, then run `make docs`.\n"
    return {path: fill(path, *each) for path, each in parts.items()} | {
        DOCS / "settlepolicy.schema.json": json.dumps(editor_schema(), indent=2) + "\n",
        CHART / "crds" / "podsettle.dev_settlepolicies.yaml": (
            f"{notice}{yaml.safe_dump(crd(), sort_keys=False, width=100)}"
        ),
    }


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")
