"""The command `podsettle export`, which prints SettlePolicies as native policies."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from webhook.cli.echo import echo_json, echo_message, echo_text
from webhook.cli.native_policy_yaml import (
    VALIDATING_NEEDS,
    as_comment,
    left_out_lines,
    node_decision_lines,
    policy_yaml,
    server_needs,
    written_line,
)
from webhook.cli.open_cluster import open_cluster
from webhook.cli.options import InputError, ViewChoice, view_options
from webhook.cluster.manifest_loader import SUFFIXES
from webhook.core.export.native_policies import API_VERSIONS, Export
from webhook.core.export.native_policies import export as export_policies
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.snapshot import Snapshot
from webhook.inspect.cluster_flags import kubectl, podsettle


@click.command()
@click.argument("names", nargs=-1, metavar="[POLICY]...")
@click.option(
    "--api-version",
    type=click.Choice(list(API_VERSIONS)),
    default="v1",
    show_default=True,
    help="The version of the API of MutatingAdmissionPolicies: v1 from Kubernetes 1.36 on, v1beta1 "
    "for 1.34 and 1.35, where it is off by default.",
)
@click.option(
    "--partial",
    is_flag=True,
    help="Leave out what no native policy can do, and list it in a comment.",
)
@click.option(
    "--guard",
    is_flag=True,
    help="Print policies that change nothing: they warn and audit if a covered pod left admission "
    "unsettled.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["yaml", "json"]),
    default="yaml",
    show_default=True,
    help="json: one List. The comments go to standard error.",
)
@view_options
@click.pass_context
def export(
    context: click.Context,
    names: tuple[str, ...],
    api_version: str,
    partial: bool,
    guard: bool,
    output: str,
    view: ViewChoice,
) -> None:
    """Print SettlePolicies as policies that the API server evaluates itself.

    Without POLICY, all policies are printed. They are MutatingAdmissionPolicies and their bindings,
    and ValidatingAdmissionPolicies for policies with `action: Audit`. They need no webhook. All
    policies of the cluster decide which of them comes first for a pod.

    The nodes decide now, and for all pods alike, about remedies with `when: NodesNeedIt`.

    Exit codes: 0 the policies were printed; 1 nothing was printed, because a policy has a part that
    no native policy can do; 2 another error.
    """
    _check_no_paths(names)
    with open_cluster(view) as opened:
        known = opened.known
    for problem in known.problems:
        echo_message(str(problem))
    if known.has_invalid_input:
        raise InputError("export: the manifests have errors, so nothing was printed")
    for note in known.notes:
        echo_message(note)
    _check_names(names, known.title, known.view)
    found = export_policies(
        known.view.policies,
        known.view,
        known.settings,
        api_version=api_version,
        names=names or None,
        guard=guard,
    )
    if found.not_native and not partial:
        for each in found.not_native:
            echo_message(f"export: {each.policy}: {each.part}: {each.why}")
        echo_message("export: nothing was printed; --partial leaves these parts out")
        context.exit(1)
    if not found.policies:
        echo_message(f"export: no policy is printed: {_why_none(found)}")
    words = [*names, *(word for path in view.manifests for word in ("--manifests", str(path)))]
    words += ["--api-version", api_version] if api_version != "v1" else []
    words += ["--partial"] if partial else []
    words += ["--guard"] if guard else []
    command = known.flags.command(podsettle("export", *words))
    needs = VALIDATING_NEEDS if guard else server_needs(api_version)
    removal = known.flags.command(kubectl("delete", "-f", "FILE"))
    comments = [*_comments(found, known.title, command, removal, needs)]
    if output == "json":
        for comment in filter(None, comments):
            echo_message(comment)
        items = [document for policy in found.policies for document in policy.documents]
        echo_json(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2))
        return
    documents = (policy_yaml(each, [_about(each.source)]) for each in found.policies)
    echo_text(as_comment(comments), *documents)


def _check_no_paths(names: Iterable[str]) -> None:
    """Raise click.UsageError if a name is the path of a file."""
    for name in names:
        # An object may have such a name, but hardly one that is also a file here.
        if "/" in name or (name.endswith(SUFFIXES) and Path(name).is_file()):
            raise click.UsageError(
                f"POLICY is a name, and {name} looks like a path. To read it: --manifests {name}"
            )


def _check_names(names: Iterable[str], title: str, view: Snapshot) -> None:
    """Raise InputError if there is no policy with one of the names, or none at all."""
    known = [policy.metadata.name for policy in view.policies.by_precedence]
    if not known:
        raise InputError(
            f"export: {title}: there is no SettlePolicy. To read one from a file: --manifests FILE"
        )
    for name in names:
        if name not in known:
            raise InputError(
                f"export: there is no SettlePolicy {name}; there are: {', '.join(known)}"
            )


def _why_none(found: Export) -> str:
    if found.not_native or found.by_nodes:
        return "the comment of the output says what is left out"
    return "policies with action: Audit settle no pods, so they have no guard"


def _comments(found: Export, title: str, command: str, removal: str, needs: str) -> Iterator[str]:
    """Yield what the output does not say itself, a paragraph or an item of a list at a time."""
    yield written_line(title, command)
    yield (
        "The API server evaluates these policies itself. They do not follow later changes of the "
        f"SettlePolicies: repeat the command. To remove them: {removal}"
    )
    yield needs
    yield from left_out_lines(found)
    yield from node_decision_lines(found)


def _about(policy: SettlePolicy) -> str:
    """Return the name and the description of a policy."""
    description = policy.spec.description
    name = f"SettlePolicy {policy.metadata.name}"
    return f"{name}: {description}" if description else name
