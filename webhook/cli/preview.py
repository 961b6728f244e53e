"""The command `podsettle preview`, which shows how podsettle would change pods."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click

from webhook.cli.hints import missing_node_hints
from webhook.cli.image_resolver import new_image_resolver
from webhook.cli.options import (
    InputError,
    linger_image_option,
    load_manifests,
    manifests_option,
    paths_argument,
)
from webhook.cluster.manifest_loader import SUFFIXES, ManifestsError, manifest_files
from webhook.core.admission.decide import OperatorSettings
from webhook.core.images import NO_IMAGES, ImageQuery, KnownImages
from webhook.core.labels import parse_labels
from webhook.core.preview.document import Document, DocumentError
from webhook.core.preview.model import ObjectWithoutPod, PreviewAnswer, render, render_passed_over
from webhook.core.preview.preview import Preview, preview_all, to_yaml
from webhook.core.preview.workloads import PassedOver
from webhook.core.preview.yaml_documents import load_documents
from webhook.core.reasons import Outcome

# No API server waits for a preview, so look-ups may take longer than in the webhook.
_IMAGE_LOOKUP_SECONDS = 30.0


@dataclass(slots=True)
class _Results:
    """The previews of all pods, and the objects without a pod that can be shown."""

    previews: list[Preview] = field(default_factory=list)
    passed_over: list[ObjectWithoutPod] = field(default_factory=list)
    unreadable: list[ObjectWithoutPod] = field(default_factory=list)


@click.command()
@paths_argument
@manifests_option
@linger_image_option
@click.option(
    "-n", "--namespace", metavar="NAME", help="The namespace to use instead of the pod's own."
)
@click.option(
    "--namespace-label",
    "namespace_labels",
    multiple=True,
    metavar="KEY=VALUE",
    help="A label of the namespace. Can be repeated. The labels replace those in the manifests.",
)
@click.option(
    "--template-path",
    metavar="PATH",
    help="The path of the pod template, such as spec.template, in objects of a kind that "
    "podsettle does not know.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "diff", "patch", "json", "yaml"]),
    default="text",
    show_default=True,
    help="text: reasons and diff. diff: only the diff. patch: the JSON Patch. json: everything. "
    "yaml: the pods as they would be admitted.",
)
@click.option(
    "--look-up-images",
    is_flag=True,
    help="Ask registries for the entrypoints of images, if the policies allow it. No credentials "
    "are used.",
)
@click.option("--fail-on-change", is_flag=True, help="Exit with 1 if any pod would change.")
@click.pass_context
def preview(
    context: click.Context,
    paths: tuple[Path, ...],
    manifests: Path,
    linger_image: str | None,
    namespace: str | None,
    namespace_labels: tuple[str, ...],
    template_path: str | None,
    output: str,
    look_up_images: bool,
    fail_on_change: bool,
) -> None:
    """Show how podsettle would change the pods of workloads.

    Each PATH is a file, a directory, or - for standard input. The same code as in the webhook
    makes the decisions. The files in --manifests replace the cluster.

    Objects without a pod, such as Services, are skipped. A message on standard error names each of
    them, and the object to preview instead, if there is one. Messages also name the objects that
    cannot be read, and the objects that need --template-path. The pods of all other objects are
    shown.

    Exit codes: 0 success, even if objects were skipped; 1 with --fail-on-change if any pod would
    change; 2 if no object has a pod, or if a file, an object, a pod template or a policy cannot be
    read.
    """
    source = load_manifests(manifests)
    for problem in source.problems:
        _print_message(str(problem))
    try:
        labels = parse_labels(namespace_labels)
    except ValueError as error:
        raise InputError(str(error)) from None
    documents, errors = _load_documents(paths)

    def preview_pods(document: Document, images: KnownImages) -> Iterator[Preview | PassedOver]:
        return preview_all(
            document.value,
            source.view.policies,
            source.view,
            OperatorSettings(linger_image=linger_image),
            namespace=namespace,
            namespace_labels=labels or None,
            template_path=template_path,
            images=images,
        )

    results = _preview_documents(documents, preview_pods, NO_IMAGES)
    if look_up_images:
        missing = {
            query for preview in results.previews for query in preview.decision.missing_images
        }
        results = _preview_documents(documents, preview_pods, asyncio.run(_look_up_images(missing)))
    for text in (*errors, *map(str, results.unreadable), *map(str, results.passed_over)):
        _print_message(_escape_control_characters(text))
    if not results.previews and not errors:
        _print_message("no object in the input has a pod")
    for name in dict.fromkeys(preview.namespace for preview in results.previews):
        if name not in source.view.namespaces and not labels:
            _print_message(
                f"namespace {name!r} is not in {manifests}: it is treated as one without labels"
            )
    if results.previews:
        has_nodes = bool(source.view.nodes.all)
        for hint in missing_node_hints(source.policies_in_force.values(), has_nodes, manifests):
            _print_message(hint)
    click.echo(
        _as_json(results) if output == "json" else _FORMATS[output](results.previews), nl=False
    )
    if source.problems or errors or results.unreadable or not results.previews:
        context.exit(2)
    if fail_on_change and any(preview.decision.patch for preview in results.previews):
        context.exit(1)


def _print_message(text: str) -> None:
    click.echo(f"podsettle: {text}", err=True)


def _load_documents(paths: tuple[Path, ...]) -> tuple[list[Document], list[str]]:
    """Return the documents of all readable files, and the errors of all other files."""
    documents: list[Document] = []
    errors: list[str] = []
    for path in paths:
        try:
            files = manifest_files(path) if path.is_dir() else [path]
        except ManifestsError as error:
            errors.append(str(error))
            continue
        if not files:
            errors.append(f"{path}: contains no file that ends in {', '.join(SUFFIXES)}")
        for file in files:
            try:
                name, text = _read_name_and_bytes(file)
                documents += load_documents(text, name)
            except OSError as error:
                errors.append(f"{file}: {error.strerror}")
            except DocumentError as error:
                errors.append(str(error))
    return documents, errors


def _read_name_and_bytes(file: Path) -> tuple[str, bytes]:
    """Return a name for messages and the content of a file. `-` is standard input."""
    if str(file) == "-":
        return "stdin", sys.stdin.buffer.read()
    return str(file), file.read_bytes()


def _preview_documents(
    documents: list[Document],
    preview_pods: Callable[[Document, KnownImages], Iterator[Preview | PassedOver]],
    images: KnownImages,
) -> _Results:
    """Preview the pods in all documents, and sort the results by kind."""
    results = _Results()
    for document in documents:
        for result in preview_pods(document, images):
            if isinstance(result, Preview):
                results.previews.append(result)
            else:
                without_pod = results.unreadable if result.malformed else results.passed_over
                without_pod.append(render_passed_over(result, document))
    return results


async def _look_up_images(missing: Iterable[ImageQuery]) -> KnownImages:
    resolver = new_image_resolver()
    try:
        return await resolver.find(missing, _IMAGE_LOOKUP_SECONDS, max_images=None)
    finally:
        await resolver.aclose()


def _as_text(previews: list[Preview]) -> str:
    return "\n".join(_pod_text(preview) for preview in previews)


def _pod_text(preview: Preview) -> str:
    decision = preview.decision
    title = click.style(_escape_control_characters(preview.workload.title), bold=True)
    policies = f"  policies: {', '.join(decision.policies)}" if decision.policies else ""
    lines = [f"{title} in namespace {_escape_control_characters(preview.namespace)}{policies}"]
    lines += [f"  {_outcome_text(outcome)}" for outcome in decision.outcomes]
    return "\n".join(lines) + "\n" + _colour_diff(preview.diff)


def _escape_control_characters(text: str) -> str:
    """Escape the control characters in a text, because a terminal would execute them."""
    return text if text.isprintable() else ascii(text)


def _outcome_text(outcome: Outcome) -> str:
    """Return `REASON REMEDY CONTAINER: MESSAGE`, with a colour for the reason."""
    colour = "green" if outcome.changed else "yellow" if outcome.reason.warns else None
    reason = click.style(str(outcome.reason), fg=colour)
    subject = _escape_control_characters(
        " ".join(filter(None, (outcome.remedy, outcome.container)))
    )
    message = _escape_control_characters(outcome.message or outcome.reason.meaning)
    return f"{reason} {subject}: {message}" if subject else f"{reason}: {message}"


_DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def _colour_diff(diff: str) -> str:
    return "\n".join(
        click.style(line, fg=_DIFF_COLOURS[line[0]]) if line[:1] in _DIFF_COLOURS else line
        for line in diff.split("\n")
    )


def _as_json(results: _Results) -> str:
    answer = PreviewAnswer(
        pods=[render(preview) for preview in results.previews],
        passed_over=results.passed_over,
        unreadable=results.unreadable,
    )
    return json.dumps(answer.model_dump(mode="json", by_alias=True), indent=2) + "\n"


def _as_patch(previews: list[Preview]) -> str:
    """Return the JSON Patch of one pod, or a list of JSON Patches for several pods."""
    if not previews:
        return ""
    patches = [list(preview.decision.operations) for preview in previews]
    return json.dumps(patches[0] if len(patches) == 1 else patches, indent=2) + "\n"


def _as_diff(previews: list[Preview]) -> str:
    return "".join(_colour_diff(preview.diff) for preview in previews)


def _as_yaml(previews: list[Preview]) -> str:
    return "---\n".join(to_yaml(preview.after) for preview in previews)


_FORMATS: dict[str, Callable[[list[Preview]], str]] = {
    "text": _as_text,
    "diff": _as_diff,
    "patch": _as_patch,
    "yaml": _as_yaml,
}
