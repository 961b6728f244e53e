"""The command `podsettle preview`, which shows how podsettle would change pods."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import click

from webhook.cli.echo import echo_message, echo_text, emit
from webhook.cli.open_cluster import OpenCluster, open_cluster
from webhook.cli.options import (
    IMAGE,
    PLACEHOLDER_IMAGE,
    ViewChoice,
    output_option,
    parse_label_options,
    paths_argument,
    view_options,
)
from webhook.cli.preview_text import print_diff, print_previews
from webhook.cluster.manifest_loader import SUFFIXES, ManifestsError, files_of
from webhook.core.constants import OBJECT_NAME
from webhook.core.images import NO_IMAGES, ImageQuery, KnownImages
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.model import SettlePolicy
from webhook.core.preview.document import Document, DocumentError, mapping_in
from webhook.core.preview.list_items import find_objects
from webhook.core.preview.model import PreviewAnswer
from webhook.core.preview.pod_before_and_after import to_yaml
from webhook.core.preview.pods_in_document import ObjectWithoutPod, PassedOver, policies_in
from webhook.core.preview.preview import Preview, preview_all, render
from webhook.core.preview.yaml_documents import load_documents
from webhook.inspect.cluster_flags import NO_FLAGS, ClusterFlags, kubectl, podsettle
from webhook.inspect.known_cluster import KnownCluster

if TYPE_CHECKING:
    from webhook.cluster.client import ApiServer

_MAX_NAMED_PODS = 3
# No API server waits for a preview, so look-ups may take longer than in the webhook.
_IMAGE_LOOKUP_SECONDS = 30.0


@click.command()
@paths_argument
@view_options
@click.option(
    "--linger-image",
    envvar="PODSETTLE_LINGER_IMAGE",
    show_envvar=True,
    show_default=f"that of the installation in the cluster, else {PLACEHOLDER_IMAGE}",
    type=IMAGE,
    metavar="IMAGE",
    help="The image of the helper, the program that wraps containers without a shell.",
)
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    help="The namespace to use instead of the pod's own. The default for pods that name none is "
    "that of the kubeconfig's context, or in a pod the pod's own.",
)
@click.option(
    "--namespace-label",
    "namespace_labels",
    multiple=True,
    metavar="KEY=VALUE",
    callback=parse_label_options,
    help="A label of the namespace. Can be repeated. The labels replace those that it has.",
)
@click.option(
    "--template-path",
    metavar="PATH",
    help="The path of the pod template, such as spec.template, in objects of a kind that "
    "podsettle does not know.",
)
@output_option(
    "text",
    "diff",
    "patch",
    "json",
    "yaml",
    about="text: reasons and diff. diff: only the diff. patch: the JSON Patch. json: everything. "
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
    namespace_labels: dict[str, str],
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
    documents, errors = _read_documents(paths)
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
            replacements |= policies_in(document)
        policies = cluster.view.policies.replaced(replacements.values())
        seen = dataclasses.replace(cluster.view, policies=policies)

        def decide(images: KnownImages) -> list[Preview | PassedOver]:
            return [
                result
                for document in documents
                for result in preview_all(
                    document,
                    seen,
                    cluster.settings,
                    namespace=namespace,
                    default_namespace=cluster.namespace,
                    namespace_labels=namespace_labels or None,
                    template_path=template_path,
                    images=images,
                    namespaces_read=cluster.has_read("namespaces"),
                )
            ]

        results = decide(NO_IMAGES)
        if look_up_images:
            decisions = [each.decided.decision for each in results if isinstance(each, Preview)]
            missing = {query for decision in decisions for query in decision.missing_images}
            results = decide(asyncio.run(_look_up_images(missing)))
        answer = PreviewAnswer(pods=[], passed_over=[], unreadable=[])
        previews = [each for each in results if isinstance(each, Preview)]
        for result in results:
            if isinstance(result, PassedOver):
                without_pod = answer.unreadable if result.malformed else answer.passed_over
                without_pod.append(_find_created_pods(result, opened, namespace))
    for text in (*errors, *map(str, answer.unreadable), *map(str, answer.passed_over)):
        echo_message(text)
    if not previews and not errors:
        echo_message("no object in the input has a pod")
    for note in dict.fromkeys(note for preview in previews for note in preview.notes):
        echo_message(note)
    if previews:
        for note in _assumptions(cluster, policies, previews):
            echo_message(note)
    _print(previews, answer, output)
    if cluster.has_invalid_input or errors or answer.unreadable or not previews:
        context.exit(2)
    if fail_on_change and any(preview.operations for preview in previews):
        context.exit(1)


def _print(previews: list[Preview], answer: PreviewAnswer, output: str) -> None:
    if output == "json":
        answer.pods = list(map(render, previews))
        emit(answer, output)
    elif output == "patch":
        patches = [list(preview.operations) for preview in previews]
        if patches:
            emit(patches[0] if len(patches) == 1 else patches, "json")
    elif output == "diff":
        for preview in previews:
            print_diff(preview.diff)
    elif output == "yaml":
        echo_text("---\n".join(to_yaml(preview.after) for preview in previews))
    else:
        print_previews(previews)


def _read_documents(paths: Iterable[Path]) -> tuple[list[Document], list[str]]:
    """Return the documents of all readable files, and the errors of all other files."""
    documents: list[Document] = []
    errors: list[str] = []
    for path in paths:
        is_stdin = str(path) == "-"
        try:
            files = [path] if is_stdin else files_of([path])
        except ManifestsError as error:
            errors.append(str(error))
            continue
        if not files:
            errors.append(f"{path}: contains no file that ends in {', '.join(SUFFIXES)}")
        for file in files:
            try:
                text = sys.stdin.buffer.read() if is_stdin else file.read_bytes()
                documents += load_documents(text, "stdin" if is_stdin else str(file))
            except OSError as error:
                errors.append(f"{file}: {error.strerror}")
            except DocumentError as error:
                errors.append(str(error))
    return documents, errors


def _namespaces_in(documents: Iterable[Document], namespace: str | None) -> set[str]:
    """Return the namespaces whose labels the decisions need."""
    if namespace is not None:
        return {namespace}
    namespaces = set()
    for document in documents:
        for value, _ in find_objects(document.value):
            name = mapping_in(value, "metadata").get("namespace")
            if isinstance(name, str) and name:
                namespaces.add(name)
    return namespaces


def _assumptions(
    cluster: KnownCluster, policies: PolicySet, previews: Sequence[Preview]
) -> Iterator[str]:
    """Yield what the decisions assume or lack because the view does not show it."""
    unknown = {each.decided.namespace for each in previews if each.decided.namespace_seen is None}
    if unknown:
        names = ", ".join(sorted(unknown))
        yield f"the labels of namespace {names} are unknown: --namespace-label KEY=VALUE gives them"
    settings = [each for policy in policies.documents for each in policy.spec.settings().values()]
    asks_nodes = any(getattr(each, "when", None) == "NodesNeedIt" for each in settings)
    if asks_nodes and cluster.has_read("nodes") and not cluster.view.nodes.all:
        where = cluster.title
        yield f"no Node in {where}: remedies with `when: NodesNeedIt` are treated as needed"
    if cluster.why_image_is_assumed and any(
        PLACEHOLDER_IMAGE in json.dumps(preview.operations) for preview in previews
    ):
        yield (
            f"{PLACEHOLDER_IMAGE} stands for the image of the helper, because "
            f"{cluster.why_image_is_assumed}: --linger-image IMAGE replaces it"
        )


def _find_created_pods(
    passed_over: PassedOver, opened: OpenCluster, namespace: str | None
) -> ObjectWithoutPod:
    """Say where the pods of an object are, if another system has created them in the cluster.

    Otherwise the message stays, and its commands get the flags of the cluster.
    """
    shown = passed_over.shown
    if opened.connection is None:
        return shown
    flags, message = opened.known.flags, shown.message
    for command in (kubectl("get", "pod"), podsettle("preview")):
        message = message.replace(NO_FLAGS.command(command), flags.command(command))
    if selector := passed_over.pods_selector:
        server, chosen = opened.connection.server, namespace or shown.namespace
        described = _describe_created_pods(
            server, chosen or opened.known.namespace, selector, flags
        )
        message = opened.connection.run(described) or message
    return dataclasses.replace(shown, message=message)


async def _describe_created_pods(
    server: ApiServer, namespace: str, selector: str, flags: ClusterFlags
) -> str:
    """Return where the pods with some labels are, and how to ask about them, in a clause.

    `flags` are those of the printed command. The result is empty if there are none, and if the
    namespace has no valid name.
    """
    from webhook.cluster.errors import ApiError
    from webhook.cluster.reflector import METADATA_ONLY
    from webhook.cluster.rights import Right

    if not OBJECT_NAME.fullmatch(namespace):
        return ""
    query = urlencode({"labelSelector": selector, "limit": _MAX_NAMED_PODS + 1})
    path = f"/api/v1/namespaces/{namespace}/pods?{query}"
    try:
        page = await server.page(path, METADATA_ONLY.format(list="List"))
    except ApiError as error:
        if error.status != 403:
            raise
        right = Right("list", "", "pods", namespace)
        return f"its pods were not looked for: it needs the right to {right}"
    names = [str(item["metadata"]["name"]) for item in page.items]
    if not names:
        return ""
    pods = ", ".join(f"{namespace}/{name}" for name in names[:_MAX_NAMED_PODS])
    more = " and more" if len(names) > _MAX_NAMED_PODS else ""
    verb = "pod is" if len(names) == 1 else "pods are"
    command = flags.command(podsettle("explain", f"pod/{names[0]}", "-n", namespace))
    return f"its {verb} {pods}{more}: {command}"


async def _look_up_images(missing: Iterable[ImageQuery]) -> KnownImages:
    from webhook.images.lookup import ImageLookup

    async with aclosing(ImageLookup()) as lookup:
        return await lookup.find(missing, _IMAGE_LOOKUP_SECONDS, max_images=None)
