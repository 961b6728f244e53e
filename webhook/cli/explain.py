"""The command `podsettle explain`, which says what podsettle did to a pod, and why."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from webhook.cli.completions import complete_targets
from webhook.cli.echo import echo_document, echo_message, echo_text
from webhook.cli.open_cluster import Connection, OpenCluster, open_cluster
from webhook.cli.options import (
    InputError,
    ViewChoice,
    namespace_option,
    verbose_option,
    view_options,
)

if TYPE_CHECKING:
    from webhook.inspect.explain.found import Found
    from webhook.inspect.explain.target import ObjectTarget
    from webhook.inspect.explain.text import Explanation


@click.command()
@click.argument(
    "target", nargs=-1, required=True, metavar="TARGET", shell_complete=complete_targets
)
@namespace_option
@click.option(
    "-A",
    "--all-namespaces",
    is_flag=True,
    help="Look for the object in all namespaces. As in kubectl, it overrides -n.",
)
@view_options
@verbose_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    show_default=True,
    help="text: sentences. json, yaml: everything.",
)
def explain(
    target: tuple[str, ...],
    namespace: str | None,
    all_namespaces: bool,
    view: ViewChoice,
    output: str,
) -> None:
    """Say what podsettle did to a pod, why, and what it would do today.

    TARGET is the name of a pod, pod/NAME, deploy/NAME, sts/NAME, ds/NAME, job/NAME, cronjob/NAME,
    a reason code such as NoCommand, or a remedy such as postInitSleep. As in kubectl, a kind may
    also be written as deployments.apps, and stand apart from the name. Nothing is changed.

    Of a pod, the output says which remedies were applied and by which policy, what was left out and
    why, and which nodes still need the remedies. Of a workload, it says what the next pod would
    get. Without the right to read policies, it says what the pod alone tells, and names the missing
    right.

    With --manifests, the object is looked for in these files too.

    Exit codes: 0 success; 2 if the target does not exist or cannot be read.
    """
    # Imported here, because the completion of a command line needs no models.
    from webhook.core.pod import DECODE_ERRORS
    from webhook.core.reasons import Reason
    from webhook.inspect.explain.found import explain as explain_object
    from webhook.inspect.explain.reason_code import explain_reason
    from webhook.inspect.explain.remedy import explain_remedy
    from webhook.inspect.explain.target import RemedyTarget, TargetError, parse_target
    from webhook.inspect.explain.text import as_text

    try:
        parsed = parse_target("/".join(target), view.cluster.flags)
    except TargetError as error:
        raise InputError(str(error)) from None
    answer: Explanation
    if isinstance(parsed, Reason):
        answer = explain_reason(parsed)
    elif isinstance(parsed, RemedyTarget):
        answer = explain_remedy(parsed.name)
    else:
        namespace = None if all_namespaces else namespace
        namespaces = (namespace,) if namespace else ()
        with open_cluster(view, namespaces=namespaces) as opened:
            found = _find(parsed, namespace, all_namespaces, opened)
        for problem in opened.known.problems:
            echo_message(str(problem))
        try:
            answer = explain_object(parsed, found, opened.known)
        except DECODE_ERRORS as error:
            raise InputError(f"{parsed}: the pod cannot be read: {error}") from None
        if _has_no_pod(answer):
            echo_message(f"explain: no pod of {parsed} was found in namespace {found.namespace}")
    if output != "text":
        echo_document(answer.model_dump_json(by_alias=True, indent=2), output)
    else:
        echo_text(as_text(answer))


def _has_no_pod(answer: Explanation) -> bool:
    """Return whether the pods of a workload were read, and there is none."""
    from webhook.inspect.explain.model import WorkloadExplanation
    from webhook.inspect.scan.resources import PODS

    if not isinstance(answer, WorkloadExplanation) or answer.pods:
        return False
    return all(unknown.what != PODS.name for unknown in answer.unknown)


def _find(
    target: ObjectTarget, namespace: str | None, all_namespaces: bool, opened: OpenCluster
) -> Found:
    """Return the target's object and what belongs to it. Raise InputError if it is not found."""
    from webhook.cluster.reader import ClusterReader
    from webhook.inspect.explain.found import NotFoundError, find_related, with_exported
    from webhook.inspect.explain.source import (
        find_namespace,
        find_object,
        get_object,
        namespace_of,
    )
    from webhook.inspect.paged import PagedReader
    from webhook.inspect.scan.dump import DumpReader

    try:
        if not isinstance(opened.source, Connection):
            document = find_object(opened.source, target, namespace)
            chosen = namespace or namespace_of(document) or opened.known.namespace
            reader = DumpReader(opened.source)
            return asyncio.run(find_related(reader, target, document, chosen))
        server, run = opened.source.server, opened.source.run
        flags = opened.known.flags
        if all_namespaces:
            chosen = run(find_namespace(server, target, flags))
        else:
            chosen = namespace or opened.known.namespace
        document = run(get_object(server, target, chosen, flags))
        found = run(find_related(PagedReader(server), target, document, chosen, flags))
        return run(with_exported(ClusterReader(server), found, flags))
    except NotFoundError as error:
        raise InputError(str(error)) from None
