"""podsettle preview: what would happen to these pods?"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click

from webhook.cli.notes import note_on_nodes
from webhook.cli.options import (
    InputError,
    linger_image_option,
    load_manifests,
    manifests_option,
)
from webhook.cluster.manifests import ManifestsError, manifest_files
from webhook.core.decide import Settings
from webhook.core.decision import Outcome
from webhook.core.documents import Document, DocumentError, load_documents
from webhook.core.image_config import NO_IMAGES, ImageQuery, KnownImages
from webhook.core.preview import Preview, preview_all, to_yaml
from webhook.core.render import render
from webhook.core.selectors import parse_labels
from webhook.core.workloads import NoPodError, WorkloadError
from webhook.images.lookup import ImageLookup

_SECONDS_FOR_IMAGES = 30.0


@click.command()
@click.argument(
    "paths",
    nargs=-1,
    required=True,
    type=click.Path(allow_dash=True, path_type=Path),
    metavar="PATH...",
)
@manifests_option
@linger_image_option
@click.option("-n", "--namespace", metavar="NAME", help="The namespace, instead of the pod's own.")
@click.option(
    "--namespace-label",
    "namespace_labels",
    multiple=True,
    metavar="KEY=VALUE",
    help="The namespace's labels, instead of those in the manifests; may be repeated.",
)
@click.option(
    "--template-path",
    metavar="PATH",
    help="Where a kind that podsettle does not know keeps its pod template: spec.template",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "diff", "patch", "json", "yaml"]),
    default="text",
    show_default=True,
    help="text: reasons and diff. diff: the diff alone. patch: the JSON Patch. json: everything. "
    "yaml: the pods as admitted.",
)
@click.option(
    "--look-up-images",
    is_flag=True,
    help="Ask registries what images start, as far as the policies allow it: with no credentials.",
)
@click.option("--fail-on-change", is_flag=True, help="Exit code 1 if any pod would change.")
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
    """Show what would happen to the pods of workloads: files, directories, or - for standard input.

    The code that decides is the webhook's own; only the view of the cluster comes from files.
    """
    source = load_manifests(manifests)
    for problem in source.problems:
        click.echo(f"podsettle: {problem}", err=True)
    try:
        labels = parse_labels(namespace_labels)
        documents = [
            (name, document)
            for name, text in _read(paths)
            for document in load_documents(text, name)
        ]

        def previewed(document: Document, images: KnownImages) -> Iterator[Preview]:
            return preview_all(
                document.value,
                source.view,
                Settings(linger_image=linger_image),
                namespace=namespace,
                namespace_labels=labels or None,
                template_path=template_path,
                images=images,
            )

        previews, passed_by = _previews(documents, previewed, NO_IMAGES)
        if look_up_images:
            lacking = {query for found in previews for query in found.decision.lacking}
            known = asyncio.run(_look_up(lacking))
            previews, passed_by = _previews(documents, previewed, known)
    except (DocumentError, ValueError) as error:
        raise InputError(str(error)) from None
    if not previews:
        raise InputError("\n".join(passed_by) or "no pod and no workload in what was given")
    for name in dict.fromkeys(found.namespace for found in previews):
        if name not in source.view.namespaces and not labels:
            note = f"namespace {name!r} is not in {manifests}: decided as one without labels"
            click.echo(f"podsettle: {note}", err=True)
    for note in note_on_nodes(source.documents.values(), bool(source.view.nodes.all), manifests):
        click.echo(f"podsettle: {note}", err=True)
    click.echo(_FORMATS[output](previews), nl=False)
    if source.problems:
        context.exit(2)
    if fail_on_change and any(found.decision.operations for found in previews):
        context.exit(1)


def _previews(
    documents: list[tuple[str, Document]],
    previewed: Callable[[Document, KnownImages], Iterator[Preview]],
    images: KnownImages,
) -> tuple[list[Preview], list[str]]:
    """The previews, and what is said of documents without a pod."""
    previews: list[Preview] = []
    passed_by: list[str] = []
    for name, document in documents:
        try:
            previews += previewed(document, images)
        except NoPodError as error:
            passed_by.append(f"{name}:{document.line(())}: {error}")
        except WorkloadError as error:
            raise InputError(f"{name}:{document.line(())}: {error}") from None
    return previews, passed_by


async def _look_up(lacking: Iterable[ImageQuery]) -> KnownImages:
    lookup = ImageLookup()
    try:
        return await lookup.find(lacking, _SECONDS_FOR_IMAGES, most=None)
    finally:
        await lookup.aclose()


def _read(paths: tuple[Path, ...]) -> Iterator[tuple[str, bytes]]:
    for path in paths:
        if str(path) == "-":
            yield "stdin", sys.stdin.buffer.read()
            continue
        try:
            for file in manifest_files(path) if path.is_dir() else [path]:
                yield str(file), file.read_bytes()
        except ManifestsError as error:
            raise InputError(str(error)) from None
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from None


def _as_text(previews: list[Preview]) -> str:
    return "\n".join(_pod_text(found) for found in previews)


def _pod_text(found: Preview) -> str:
    decision = found.decision
    title = click.style(_plain(found.workload.title), bold=True)
    policies = f"  policies: {', '.join(decision.policies)}" if decision.policies else ""
    lines = [f"{title} in namespace {_plain(found.namespace)}{policies}"]
    lines += [f"  {_outcome_text(outcome)}" for outcome in decision.outcomes]
    return "\n".join(lines) + "\n" + _coloured(found.diff)


def _plain(text: str) -> str:
    """A text from outside without what a terminal would obey."""
    return text if text.isprintable() else ascii(text)


def _outcome_text(outcome: Outcome) -> str:
    colour = "green" if outcome.changed else "yellow" if outcome.reason.warns else None
    subject = " ".join(part for part in (outcome.remedy, outcome.container) if part)
    reason = click.style(str(outcome.reason), fg=colour)
    message = outcome.message or outcome.reason.meaning
    return f"{reason}{f' {_plain(subject)}' if subject else ''}: {_plain(message)}"


_DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def _coloured(diff: str) -> str:
    return "\n".join(
        click.style(line, fg=_DIFF_COLOURS[line[0]]) if line[:1] in _DIFF_COLOURS else line
        for line in diff.split("\n")
    )


def _as_json(previews: list[Preview]) -> str:
    pods = [render(found).model_dump(mode="json", by_alias=True) for found in previews]
    return json.dumps({"pods": pods}, indent=2) + "\n"


def _as_patch(previews: list[Preview]) -> str:
    """The patch of one pod as it is; of several, a list of patches in their order."""
    patches = [list(found.decision.operations) for found in previews]
    return json.dumps(patches[0] if len(patches) == 1 else patches, indent=2) + "\n"


def _as_diff(previews: list[Preview]) -> str:
    return "".join(_coloured(found.diff) for found in previews)


def _as_yaml(previews: list[Preview]) -> str:
    return "---\n".join(to_yaml(found.after) for found in previews)


_FORMATS: dict[str, Callable[[list[Preview]], str]] = {
    "text": _as_text,
    "diff": _as_diff,
    "patch": _as_patch,
    "json": _as_json,
    "yaml": _as_yaml,
}
