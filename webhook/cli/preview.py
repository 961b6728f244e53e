"""The command `podsettle preview`, which shows how podsettle would change pods."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from webhook.cli.completions import complete_namespaces
from webhook.cli.documents import read_documents
from webhook.cli.echo import Part, echo_json, echo_message, echo_text
from webhook.cli.open_cluster import OpenCluster, open_cluster
from webhook.cli.options import (
    PLACEHOLDER_IMAGE,
    InputError,
    ViewChoice,
    linger_image_option,
    paths_argument,
    verbose_option,
    view_options,
)
from webhook.cli.policy_hints import missing_node_hints
from webhook.cli.preview_text import colour_diff, previews_as_text
from webhook.core.images import NO_IMAGES, ImageQuery, KnownImages
from webhook.core.labels import parse_labels
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.model import SettlePolicy
from webhook.core.preview.document import Document
from webhook.core.preview.list_items import find_objects
from webhook.core.preview.model import PreviewAnswer
from webhook.core.preview.object_without_pod import ObjectWithoutPod, render_passed_over
from webhook.core.preview.pod_before_and_after import to_yaml
from webhook.core.preview.pods_in_document import PassedOver
from webhook.core.preview.policies import policies_in, replace_policies
from webhook.core.preview.preview import Preview, preview_all, render
from webhook.inspect.cluster_flags import NO_FLAGS, kubectl, podsettle
from webhook.inspect.known_cluster import KnownCluster

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
@view_options
@verbose_option
@linger_image_option
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    shell_complete=complete_namespaces,
    help="The namespace to use instead of the pod's own. The default for pods that name none is "
    "the namespace of the kubeconfig's context.",
)
@click.option(
    "--namespace-label",
    "namespace_labels",
    multiple=True,
    metavar="KEY=VALUE",
    help="A label of the namespace. Can be repeated. The labels replace those that it has.",
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
    view: ViewChoice,
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
    makes the decisions. They are based on the cluster of the kubeconfig, which is only read, or on
    the files in --manifests. podsettle does not have to be installed: policies in PATH are used in
    place of those with the same names.

    Objects without a pod, such as Services, are skipped. A message on standard error names each of
    them, and the object to preview instead, if there is one. Messages also name the objects that
    cannot be read, and the objects that need --template-path. The pods of all other objects are
    shown.

    Exit codes: 0 success, even if objects were skipped; 1 with --fail-on-change if any pod would
    change; 2 if no object has a pod, or if a file, an object, a pod template, a policy or the
    cluster cannot be read.
    """
    try:
        labels = parse_labels(namespace_labels)
    except ValueError as error:
        raise InputError(str(error)) from None
    documents, errors = read_documents(paths)
    if not documents and errors:
        for text in errors:
            echo_message(text)
        context.exit(2)
    with open_cluster(
        view, linger_image=linger_image, namespaces=_namespaces_in(documents, namespace)
    ) as opened:
        cluster = opened.known
        for line in (*cluster.problems, *cluster.notes):
            echo_message(str(line))
        replacements: dict[str, SettlePolicy] = {}
        for document in reversed(documents):  # Of two policies with one name, the first counts.
            replacements |= policies_in(document.value)
        policies = replace_policies(cluster.view.policies, replacements.values())

        def preview_pods(document: Document, images: KnownImages) -> Iterator[Preview | PassedOver]:
            return preview_all(
                document.value,
                policies,
                cluster.view,
                cluster.settings,
                namespace=namespace,
                default_namespace=cluster.namespace,
                namespace_labels=labels or None,
                template_path=template_path,
                images=images,
                namespaces_read=cluster.has_read("namespaces"),
            )

        def find_created_pods(passed_over: PassedOver) -> PassedOver:
            return _find_created_pods(passed_over, opened, namespace)

        results = _preview_documents(documents, preview_pods, NO_IMAGES, find_created_pods)
        if look_up_images:
            missing = {
                query for preview in results.previews for query in preview.decision.missing_images
            }
            known = asyncio.run(_look_up_images(missing))
            results = _preview_documents(documents, preview_pods, known, find_created_pods)
    for text in (*errors, *map(str, results.unreadable), *map(str, results.passed_over)):
        echo_message(text)
    if not results.previews and not errors:
        echo_message("no object in the input has a pod")
    for note in dict.fromkeys(note for preview in results.previews for note in preview.notes):
        echo_message(note)
    if results.previews:
        for note in _assumptions(cluster, policies, results.previews):
            echo_message(note)
    if output == "json":
        echo_json(_as_json(results))
    elif output == "patch":
        if results.previews:
            echo_json(_as_patch(results.previews))
    else:
        echo_text(*_FORMATS[output](results.previews))
    if cluster.has_invalid_input or errors or results.unreadable or not results.previews:
        context.exit(2)
    if fail_on_change and any(preview.operations for preview in results.previews):
        context.exit(1)


def _namespaces_in(documents: Iterable[Document], namespace: str | None) -> set[str]:
    """Return the namespaces whose labels the decisions need."""
    if namespace is not None:
        return {namespace}
    namespaces = set()
    for document in documents:
        for found in find_objects(document.value):
            metadata = found.value.get("metadata") if isinstance(found.value, Mapping) else None
            name = metadata.get("namespace") if isinstance(metadata, Mapping) else None
            if isinstance(name, str) and name:
                namespaces.add(name)
    return namespaces


def _assumptions(
    cluster: KnownCluster, policies: PolicySet, previews: Sequence[Preview]
) -> Iterator[str]:
    """Yield what the decisions assume or lack because the view does not show it."""
    unknown = {each.namespace for each in previews if each.decided.namespace_seen is None}
    if unknown:
        names = ", ".join(sorted(unknown))
        yield f"the labels of namespace {names} are unknown: --namespace-label KEY=VALUE gives them"
    if cluster.has_read("nodes"):
        has_nodes = bool(cluster.view.nodes.all)
        yield from missing_node_hints(policies.documents, has_nodes, cluster.title)
    if cluster.why_image_is_assumed and any(
        PLACEHOLDER_IMAGE in json.dumps(preview.operations) for preview in previews
    ):
        yield (
            f"{PLACEHOLDER_IMAGE} stands for the image of the helper, because "
            f"{cluster.why_image_is_assumed}: --linger-image IMAGE replaces it"
        )


def _preview_documents(
    documents: list[Document],
    preview_pods: Callable[[Document, KnownImages], Iterator[Preview | PassedOver]],
    images: KnownImages,
    find_created_pods: Callable[[PassedOver], PassedOver],
) -> _Results:
    """Preview the pods in all documents, and sort the results by kind."""
    results = _Results()
    for document in documents:
        for result in preview_pods(document, images):
            if isinstance(result, Preview):
                results.previews.append(result)
            else:
                result = find_created_pods(result)
                without_pod = results.unreadable if result.malformed else results.passed_over
                without_pod.append(render_passed_over(result, document))
    return results


def _find_created_pods(
    passed_over: PassedOver, opened: OpenCluster, namespace: str | None
) -> PassedOver:
    """Say where the pods of an object are, if another system has created them in the cluster.

    Otherwise the message stays, and its commands get the flags of the cluster.
    """
    if opened.connection is None:
        return passed_over
    flags, message = opened.known.flags, passed_over.message
    for command in (kubectl("get", "pod"), podsettle("preview")):
        message = message.replace(NO_FLAGS.command(command), flags.command(command))
    passed_over = dataclasses.replace(passed_over, message=message)
    if not passed_over.pods_selector:
        return passed_over
    from webhook.cli.pods_of_custom_resource import describe_created_pods

    chosen = namespace or passed_over.namespace or opened.known.namespace
    server, selector = opened.connection.server, passed_over.pods_selector
    found = opened.connection.run(describe_created_pods(server, chosen, selector, flags))
    return dataclasses.replace(passed_over, message=found) if found else passed_over


async def _look_up_images(missing: Iterable[ImageQuery]) -> KnownImages:
    from webhook.images.lookup import ImageLookup

    resolver = ImageLookup()
    try:
        return await resolver.find(missing, _IMAGE_LOOKUP_SECONDS, max_images=None)
    finally:
        await resolver.aclose()


def _as_json(results: _Results) -> str:
    answer = PreviewAnswer(
        pods=[render(preview) for preview in results.previews],
        passed_over=results.passed_over,
        unreadable=results.unreadable,
    )
    return json.dumps(answer.model_dump(mode="json", by_alias=True), indent=2)


def _as_patch(previews: list[Preview]) -> str:
    """Return the JSON Patch of one pod, or a list of JSON Patches for several pods."""
    patches = [list(preview.operations) for preview in previews]
    return json.dumps(patches[0] if len(patches) == 1 else patches, indent=2)


def _as_diff(previews: list[Preview]) -> Iterator[Part]:
    for preview in previews:
        yield from colour_diff(preview.diff)


def _as_yaml(previews: list[Preview]) -> list[Part]:
    return ["---\n".join(to_yaml(preview.after) for preview in previews)]


_FORMATS: dict[str, Callable[[list[Preview]], Iterable[Part]]] = {
    "text": previews_as_text,
    "diff": _as_diff,
    "yaml": _as_yaml,
}
