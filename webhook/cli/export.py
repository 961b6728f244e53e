"""The command `podsettle export`, which prints policies that the API server evaluates itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

import click

from webhook import __version__
from webhook.cli.commented_yaml import as_comment, objects_yaml
from webhook.cli.echo import echo_message, echo_text, emit
from webhook.cli.open_cluster import open_cluster, read_cluster_if_any
from webhook.cli.options import InputError, ViewChoice, output_option, view_options
from webhook.cluster.manifest_loader import SUFFIXES, duplicates, load_objects
from webhook.core.constants import KIND
from webhook.core.export.native_policies import API_VERSIONS, Export
from webhook.core.export.native_policies import export as export_policies
from webhook.core.policy.snapshot import Snapshot
from webhook.core.policy.validation_errors import ManifestProblem
from webhook.core.preview.document import DocumentError
from webhook.core.preview.text_objects import TextObject, iterate_objects
from webhook.inspect.cluster_flags import Command, kubectl, podsettle
from webhook.inspect.known_cluster import KnownCluster


@click.command()
@click.argument("names", nargs=-1, metavar="[POLICY]...")
@click.option(
    "--api-version",
    type=click.Choice(list(API_VERSIONS)),
    default="v1",
    help="The version of the API of MutatingAdmissionPolicies: v1 from Kubernetes 1.36 on, v1beta1 "
    "for 1.34 and 1.35, where it is off by default.",
)
@click.option(
    "--guard",
    is_flag=True,
    help="Print policies that change nothing: they warn and audit if a covered pod left admission "
    "unsettled.",
)
@output_option("yaml", "json", about="json: one List. The comments go to standard error.")
@view_options
@click.pass_context
def export(
    context: click.Context,
    names: tuple[str, ...],
    api_version: str,
    guard: bool,
    output: str,
    view: ViewChoice,
) -> None:
    """Print SettlePolicies as policies that the API server evaluates itself.

    Without POLICY, all policies are printed. With - as the POLICY, those on standard input are
    printed, such as `podsettle scan -o policy` proposes. The output has MutatingAdmissionPolicies
    and their bindings, and ValidatingAdmissionPolicies for policies with `action: Audit`. They need
    no webhook. All policies of the cluster decide which of them comes first for a pod.

    The nodes decide now, and for all pods alike, about remedies with `when: NodesNeedIt`. What no
    native policy can do is left out, and named in the comment in front of the output.

    Exit codes: 0 the policies were printed; 1 a part of them was left out; 2 another error.
    """
    from_stdin = names == ("-",)
    known, chosen = _policies_of_stdin(view) if from_stdin else _named_policies(view, names)
    found = export_policies(
        known.view,
        known.settings.own_namespace,
        api_version=api_version,
        names=chosen,
        guard=guard,
    )
    for each in found.not_native:  # A pipe into kubectl hides the comment.
        echo_message(f"export: left out: {each.policy}: {each.remedy}: {each.why}")
    if not found.policies:
        echo_message(
            "export: no policy is printed: the comment of the output says what is left out"
        )
    words = [*names, *view.manifest_flags]
    words += ["--api-version", api_version] if api_version != "v1" else []
    words += ["--guard"] if guard else []
    comments = list(_comments(found, known, podsettle("export", *words), api_version, guard))
    if output == "json":
        for comment in comments:
            echo_message(comment)
        items = [document for policy in found.policies for document in policy.documents]
        emit({"apiVersion": "v1", "kind": "List", "items": items}, output)
    else:
        echo_text(as_comment(comments))
        for source, documents in found.policies:
            about = (f"SettlePolicy {source.metadata.name}", source.spec.description)
            comment = as_comment([": ".join(filter(None, about))])
            echo_text("---\n", comment, objects_yaml(documents))
    if found.not_native:
        context.exit(1)


def _named_policies(
    view: ViewChoice, names: tuple[str, ...]
) -> tuple[KnownCluster, tuple[str, ...] | None]:
    """Return the cluster, and the names of the policies to print. None stands for all.

    Raises InputError if there is no policy with one of the names, or none at all.
    """
    for name in names:
        if name == "-":
            raise click.UsageError("- stands for all policies on standard input: give no name")
        # An object may have such a name, but hardly one that is also a file here.
        if "/" in name or (name.endswith(SUFFIXES) and os.path.isfile(name)):
            raise click.UsageError(
                f"POLICY is a name, and {name} looks like a path. To read it: --manifests {name}"
            )
    with open_cluster(view) as opened:
        known = _checked(opened.known)
    there = [policy.metadata.name for policy in known.view.policies.by_precedence]
    if not there:
        raise InputError(
            f"export: {known.title}: there is no SettlePolicy. To read one from a file: "
            "--manifests FILE"
        )
    for name in names:
        if name not in there:
            raise InputError(
                f"export: there is no SettlePolicy {name}; there are: {', '.join(there)}"
            )
    return known, names or None


def _policies_of_stdin(view: ViewChoice) -> tuple[KnownCluster, tuple[str, ...]]:
    """Return the cluster with the policies on standard input, and the names of these.

    Without a cluster, all nodes count as in need. Raises InputError for an object of another kind.
    """
    problems: list[ManifestProblem] = []

    def refuse_other_kinds() -> Iterator[TextObject]:
        for item in iterate_objects(sys.stdin.buffer.read(), "stdin"):
            if item.kind not in ("", KIND):
                metadata = item.parse().value.get("metadata")
                name = metadata.get("name") if isinstance(metadata, Mapping) else None
                message = f"{item.kind}/{name or '(unnamed)'}: only SettlePolicies can be exported"
                problems.append(ManifestProblem(item.source, item.line(), message))
            yield item

    try:
        objects, wrong = load_objects(refuse_other_kinds())
    except DocumentError as error:
        raise InputError(f"export: {error}") from None
    problems += (*wrong, *duplicates(each for each in objects if each.kind == KIND))
    for problem in problems:
        echo_message(str(problem))
    if problems or not objects:
        why = "has errors, so nothing was printed" if problems else "has no SettlePolicy"
        raise InputError(f"export: standard input {why}")
    cluster, why_unread = read_cluster_if_any(view)
    if why_unread:
        echo_message(f"export: not compared with a cluster: {why_unread}")
    known = _checked(cluster or KnownCluster(Snapshot(), title="stdin"))
    return known.with_policies(each.model for each in objects), tuple(each.name for each in objects)


def _checked(known: KnownCluster) -> KnownCluster:
    """Print what a cluster lacks. Raise InputError if manifests have errors."""
    for message in (*known.problems, *known.notes):
        echo_message(str(message))
    if known.has_invalid_input:
        raise InputError("export: the manifests have errors, so nothing was printed")
    return known


def _comments(
    found: Export, known: KnownCluster, command: Command, api_version: str, guard: bool
) -> Iterator[str]:
    """Yield what the output does not say itself, a paragraph or an item of a list at a time."""
    today, flags = datetime.now(UTC).date(), known.flags
    yield (
        f"Written by podsettle {__version__} on {today} from {known.title}: "
        f"{flags.command(command)}"
    )
    yield (
        "The API server evaluates these policies itself. They do not follow later changes of the "
        "SettlePolicies: remove them, and repeat the command. To remove them: "
        f"{flags.command(kubectl('delete', '-f', 'FILE'))}"
    )
    actions = {each.source.spec.action for each in found.policies}
    minimum = API_VERSIONS[api_version]
    if "Audit" in actions:
        yield (
            "Policies with `action: Audit` only report pods that they would change. To change new "
            "pods, delete this line of the SettlePolicy first."
        )
    if guard or actions == {"Audit"}:
        # ValidatingAdmissionPolicies are of the API v1 since that release.
        yield "They need Kubernetes 1.30 or later."
    elif api_version == "v1":
        yield f"They need Kubernetes {minimum.major}.{minimum.minor} or later."
    else:
        yield (
            "They need an API server with --feature-gates=MutatingAdmissionPolicy=true and "
            f"--runtime-config=admissionregistration.k8s.io/{api_version}=true."
        )
    if found.not_native:
        yield "Cannot be exported:"
        yield from (f"- {each.policy}: {each.remedy}: {each.why}" for each in found.not_native)
    if found.by_nodes:
        yield f"Decided by the nodes of {today}, for all pods alike:"
        for decision in found.by_nodes:
            verb = "acts" if decision.is_needed else "is left out"
            yield f"- {decision.policy}: {decision.remedy} {verb}: {decision.why}"
