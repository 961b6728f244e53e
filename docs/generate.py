"""The generator of the reference pages and schemas. `make docs` runs it.

A test compares the files with the output of this module.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import typing
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import click
import yaml
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from docs import (
    defects_page,
    export_page,
    limits_page,
    notices,
    reliability_page,
    scan_page,
    version_copies,
    versions_page,
    why_page,
)
from webhook.cli import main
from webhook.cluster.source import Check
from webhook.core.admission.decision import Decision
from webhook.core.constants import API_VERSION, KIND
from webhook.core.durations import DURATION_PATTERN
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.crd import crd, editor_schema
from webhook.core.policy.model import SettlePolicySpec, parse_policy
from webhook.core.policy.snapshot import Snapshot
from webhook.core.reasons import NOT_EVALUATED, Outcome, Reason
from webhook.core.remedies import REMEDIES
from webhook.server.metrics import Metrics

HERE = Path(__file__).parent
CHART = HERE.parent / "charts" / "podsettle"
_PAGE_COLUMNS = 78
"""The width of a help text, whatever the width of the terminal."""
PAGES_WITH_REGIONS = (
    "../README.md",
    "coverage.md",
    "kubernetes-versions.md",
    "limits.md",
    "post-init-sleep.md",
    "reports/tekton-exit-255.md",
)
"""The written pages with regions that hold releases of other software."""
NOTICE = "<!-- Written by docs/generate.py from the code: change that, then run `make docs`. -->\n"


def policy_page() -> str:
    """Return the page with every key of a SettlePolicy's spec."""
    lines = [
        "# SettlePolicy reference",
        "",
        "This page is for authors of policies. It lists every key of a SettlePolicy's `spec`. "
        "A SettlePolicy says which pods podsettle changes, and how. It is a cluster-scoped object "
        "of `apiVersion: podsettle.dev/v1alpha1`. [Which pods podsettle changes](coverage.md) "
        "explains how policies and selectors work together.",
        "",
        "Check a policy with `podsettle check FILE`. For more examples, see "
        "[examples/policies.yaml](../examples/policies.yaml). Durations are written `10ms`, "
        "`1.5s` or `1m30s`.",
        "",
        "```yaml",
        "apiVersion: podsettle.dev/v1alpha1",
        "kind: SettlePolicy",
        "metadata: {name: quick-jobs}   # at most 63 characters",
        "spec:",
        "  namespaceSelector: {}         # every namespace; leave it out for opt-in by label",
        "  remedies:",
        "    postInitSleep: {}           # the defaults",
        "```",
        "",
        "| key of `spec` | type | default | meaning |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| `{path}` | {kind} | {_default_of(field)} | {_description_of(field)} |"
        for path, kind, field in policy_keys(SettlePolicySpec, "")
    ]
    lines += [
        "",
        "## What each remedy changes",
        "",
        "podsettle applies the remedies in this order. In addition, it only sets its own "
        "annotations. [Reasons](reasons.md) explains the reasons. A remedy that the pod excludes "
        "has `PodOptedOut`. A remedy of a policy with `action: Audit` has `WouldApply` in place of "
        "`Applied`.",
        "",
        "| remedy | what it changes in a pod | reasons |",
        "|---|---|---|",
    ]
    lines += [
        f"| `{name}` | {why_page.effects_of(remedy)} | {_reasons(remedy.reasons)} |"
        for name, remedy in REMEDIES.items()
    ]
    return _finish_page(
        lines,
        "[which pods a policy covers](coverage.md); "
        "[install](install.md#your-first-policy), to apply a policy",
    )


def _reasons(reasons: Collection[Reason]) -> str:
    return ", ".join(f"`{reason}`" for reason in Reason if reason in reasons)


def policy_keys(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, FieldInfo]]:
    """Yield the path, type and field of each key, and of the keys inside it."""
    for name, field in model.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        inner, kind = _model_of(field.annotation), _type_of(field)
        yield path, kind, field
        if inner is not None:
            yield from policy_keys(inner, f"{path}[]." if kind == "list" else f"{path}.")


def _model_of(annotation: Any) -> type[BaseModel] | None:
    """Return the first pydantic model in a type annotation, or None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    models = (_model_of(part) for part in typing.get_args(annotation))
    return next((model for model in models if model is not None), None)


def type_adapter(field: FieldInfo) -> TypeAdapter[Any]:
    """Return an adapter for the field's type and constraints, which pydantic stores separately."""
    annotation: Any = field.annotation
    return TypeAdapter(
        typing.Annotated[annotation, *field.metadata] if field.metadata else annotation
    )


_TYPES = {
    "array": "list",
    "boolean": "boolean",
    "integer": "whole number",
    "object": "mapping",
    "string": "string",
}


def _type_of(field: FieldInfo) -> str:
    """Return the text for a field in the column "type"."""
    schema = type_adapter(field).json_schema()
    options = [option for option in schema.get("anyOf", [schema]) if option.get("type") != "null"]
    (schema,) = options
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return " \\| ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("pattern") == DURATION_PATTERN:
        (rule,) = schema["x-kubernetes-validations"]
        maximum = rule["message"].removeprefix("is longer than ").partition(",")[0]
        return f"duration, at most `{maximum}`"
    return _TYPES["object" if "$ref" in schema else schema["type"]]


def _description_of(field: FieldInfo) -> str:
    return (field.description or "").replace("|", "\\|")


def _default_of(field: FieldInfo) -> str:
    """Return the text for a field in the column "default"."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "left out"
    text = type_adapter(field).dump_json(value, by_alias=True, exclude_defaults=True)
    decoded = json.loads(text)
    return f"`{decoded}`" if isinstance(decoded, str) and decoded else f"`{text.decode()}`"


def reasons_page() -> str:
    """Return the page with every reason code."""
    lines = [
        "# Reasons",
        "",
        "This page is for everyone who has found a reason code of podsettle. For each remedy and "
        "each container, podsettle reports one code that says why it did or did not change the "
        "pod. The same code is in:",
        "",
        "- the warnings that `kubectl` prints, if the column below says so;",
        "- the audit annotations `applied` and `skipped`, after the name of the webhook;",
        "- the metric `podsettle_outcomes_total`;",
        "- podsettle's log;",
        "- the answers of `podsettle preview`, of `/preview` and of the web page;",
        "- the answers of `podsettle explain` and `podsettle scan`;",
        "- the pod's annotation `podsettle.dev/skipped`, for the reasons that warn.",
        "",
        f"Only previews and `podsettle explain` give these reasons: {_reasons(NOT_EVALUATED)}. "
        "There, each remedy of each policy that covers a pod has a reason, or the whole pod has "
        "one.",
        "",
        "[Why was my pod changed?](why-was-my-pod-changed.md#reason-codes) says what the developer "
        "of a pod can do about each code.",
        "",
        "The annotation `podsettle.dev/skipped` on a pod and the audit annotation `skipped` have "
        "one name and two forms. The pod's has the reasons that warn, as "
        "`CONTAINER/REMEDY=REASON`. The audit log's has every remedy that was not applied, as "
        "`POLICY/REMEDY[CONTAINER]=REASON`.",
        "",
        "| reason | `kubectl` warns | meaning |",
        "|---|---|---|",
    ]
    lines += [
        f"| `{reason}` | {'yes' if reason.warns else 'no'} | {reason.meaning} |"
        for reason in Reason
    ]
    return _finish_page(
        lines,
        "[Why was my pod changed?](why-was-my-pod-changed.md#reason-codes), for what you can do; "
        "[operations](operations.md#pods-are-not-settled), for operators",
    )


def metrics_page() -> str:
    """Return the page with every metric."""
    lines = [
        "# Metrics",
        "",
        "This page is for operators who monitor podsettle with Prometheus. `GET /metrics` on the "
        "[web port](http.md) returns these metrics. It needs a [token](http.md#tokens). "
        "The chart can set up scraping and [alerts](operations.md#alerts).",
        "",
        "| metric | labels | meaning |",
        "|---|---|---|",
    ]
    for family in example_metrics().registry.collect():
        suffix = "_total" if family.type == "counter" else ""
        # `le` is part of each histogram, and not a label that podsettle chooses.
        labels = [label for label in family.samples[0].labels if label != "le"]
        names = ", ".join(f"`{label}`" for label in labels) or "none"
        lines.append(f"| `{family.name}{suffix}` | {names} | {family.documentation} |")
    return _finish_page(lines, "[the alerts](operations.md#alerts); [the dashboard](dashboard.md)")


def example_metrics() -> Metrics:
    """Return metrics in which each metric has a sample, because only samples show the labels."""
    metrics = Metrics("0")
    metrics.count_refused(400)
    metrics.count_preview("answered")
    metrics.set_checks([Check("shutdown", ready=True)])
    settled = Outcome(Reason.APPLIED, "postInitSleep", "policy", changed=True)
    metrics.reviews.count(Decision((settled,), patch=b"W10="), 0.001)
    policy = parse_policy(
        {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": "policy"},
            "spec": {"remedies": {"postInitSleep": {}}},
        }
    )
    metrics.needed_policies.view = lambda: Snapshot(policies=PolicySet([policy]))
    asyncio.run(metrics.needed_policies.refresh())
    return metrics


def commands_page() -> str:
    """Return the page with every command and its options."""
    lines = [
        "# Commands",
        "",
        "This page is for operators and for authors of CI scripts. It lists every command of "
        "podsettle with its options. `podsettle COMMAND --help` prints the same text.",
        "",
        inspect.cleandoc(main.help or ""),
        "",
    ]
    for title, command in _commands(main, "podsettle"):
        context = click.Context(
            command, info_name=title, **main.context_settings, terminal_width=_PAGE_COLUMNS
        )
        lines += [f"## {title}", "", "```", command.get_help(context), "```", ""]
    return _finish_page(
        lines,
        "[how to install the command](install.md#the-command-line); [scan](scan.md); "
        "[wait and logs](wait-and-logs.md)",
    )


def _commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield each command with its full name. The commands of a group follow the group."""
    context = click.Context(group)
    for name in group.list_commands(context):
        if (command := group.get_command(context, name)) is None:
            continue
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}")


def crd_page() -> str:
    """Return the CustomResourceDefinition that the chart installs."""
    notice = NOTICE.replace("<!-- ", "# ").replace(" -->", "")
    return notice + yaml.safe_dump(crd(), sort_keys=False, width=100)


def chart_page() -> str:
    """Return the page with every value of the chart, from the comments in values.yaml."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    lines = [
        "# podsettle's chart",
        "",
        "This Helm chart installs podsettle in a cluster. podsettle is "
        f"{chart['description'][0].lower()}{chart['description'][1:]}. "
        f"The chart needs Kubernetes {chart['kubeVersion'].removesuffix('-0')}.",
        "",
        "Run this in a checkout, with images that you have built and pushed to your own registry:",
        "",
        "```sh",
        "helm install podsettle charts/podsettle \\",
        "  --namespace podsettle-system --create-namespace \\",
        '  --set image.repository="$REGISTRY/podsettle" --set lingerImage="$REGISTRY/linger"',
        "```",
        "",
        "- How to build the images, and how to install, upgrade and uninstall the chart: "
        "[docs/install.md](../../docs/install.md)",
        "- What to do when something is wrong: [docs/operations.md](../../docs/operations.md)",
        "- podsettle's own words: [docs/glossary.md](../../docs/glossary.md)",
        "",
        "## Values",
        "",
        "| value | default | meaning |",
        "|---|---|---|",
    ]
    lines += [
        f"| `{path}` | `{json.dumps(value)}` | {description} |"
        for path, value, description in _chart_values(text.splitlines(), yaml.compose(text), "")
    ]
    return _finish_page(lines, "[install](../../docs/install.md); [security](../../SECURITY.md)")


def _chart_values(lines: list[str], node: Any, prefix: str) -> Iterator[tuple[str, Any, str]]:
    """Yield the path, default and comment of each value.

    Raises ValueError for a value that has no comment in the line above it.
    """
    for key, value in node.value:
        path = f"{prefix}{key.value}"
        comment = lines[key.start_mark.line - 1].strip()
        if comment.startswith("# "):
            decoded = yaml.safe_load(yaml.serialize(value))
            yield path, decoded, comment.removeprefix("# ").replace("|", "\\|")
        elif isinstance(value, yaml.MappingNode) and value.value:
            # A group of values needs no comment, because each of its keys has one.
            yield from _chart_values(lines, value, f"{path}.")
        else:
            raise ValueError(f"{CHART.name}/values.yaml: {path} has no comment")


def editor_schema_page() -> str:
    """Return the JSON Schema with which editors complete and check a SettlePolicy."""
    return json.dumps(editor_schema(), indent=2) + "\n"


def _page_with_regions(name: str) -> Callable[[], str]:
    """Return a function that returns a written page with releases and versions in their places."""

    def page() -> str:
        text = version_copies.fill(name, (HERE / name).read_text(encoding="utf-8"))
        return versions_page.fill_regions(defects_page.fill_regions(text))

    return page


PAGES: dict[str, Callable[[], str]] = {
    "policy.md": policy_page,
    "reasons.md": reasons_page,
    "metrics.md": metrics_page,
    "commands.md": commands_page,
    "settlepolicy.schema.json": editor_schema_page,
    "../charts/podsettle/crds/podsettle.dev_settlepolicies.yaml": crd_page,
    "../charts/podsettle/README.md": chart_page,
    "defects.md": lambda: _finish_page(
        defects_page.page_lines(),
        "the page of the defect; [scan](scan.md), to find out whether your nodes and pods have it",
    ),
    **{
        name: _page_with_regions(name)
        for name in dict.fromkeys((*PAGES_WITH_REGIONS, *version_copies.COPIES))
    },
    "../THIRD_PARTY_NOTICES": lambda: notices.fill_region(
        (HERE.parent / "THIRD_PARTY_NOTICES").read_text(encoding="utf-8")
    ),
    "why-was-my-pod-changed.md": lambda: why_page.fill_regions(
        (HERE / "why-was-my-pod-changed.md").read_text(encoding="utf-8")
    ),
    "reliability.md": lambda: reliability_page.fill_regions(
        (HERE / "reliability.md").read_text(encoding="utf-8")
    ),
    "scan.md": lambda: scan_page.fill_regions((HERE / "scan.md").read_text(encoding="utf-8")),
    "export.md": lambda: export_page.fill_regions((HERE / "export.md").read_text(encoding="utf-8")),
    "http.md": lambda: limits_page.fill_regions((HERE / "http.md").read_text(encoding="utf-8")),
}


def _finish_page(lines: list[str], read_next: str) -> str:
    """Return the text of a generated page, with the notice in front, and its last line."""
    text = "\n".join(lines).rstrip()
    return f"{NOTICE}{text}\n\n**Read next:** {read_next}.\n"


if __name__ == "__main__":
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")
