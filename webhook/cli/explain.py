"""The command `podsettle explain`, which says what podsettle did to a pod, and why."""

from __future__ import annotations

import asyncio

import click

from webhook.cli.echo import echo_message, echo_text, emit
from webhook.cli.open_cluster import Connection, open_cluster
from webhook.cli.options import (
    InputError,
    ViewChoice,
    namespace_option,
    output_option,
    view_options,
)


def _complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    from webhook.inspect.explain.target import WORDS

    return [str(word) for name, word in WORDS.items() if name.startswith(incomplete.lower())]


@click.command()
@click.argument("target", nargs=-1, required=True, metavar="TARGET", shell_complete=_complete)
@namespace_option
@click.option(
    "-A",
    "--all-namespaces",
    is_flag=True,
    help="Look for the object in all namespaces. As in kubectl, it overrides -n.",
)
@view_options
@output_option("text", "json", "yaml", about="text: sentences. json, yaml: everything.")
def explain(
    target: tuple[str, ...],
    namespace: str | None,
    all_namespaces: bool,
    view: ViewChoice,
    output: str,
) -> None:
    """Say what podsettle did to a pod, why, and what it would do today.

    TARGET is the name of a pod, pod/NAME, deploy/NAME, sts/NAME, ds/NAME, job/NAME, cronjob/NAME,
    a reason code such as NoCommand, a remedy such as postInitSleep, a defect or symptom of a scan
    such as cri-o-9840, or `wrapper`, which prints the script that postInitSleep adds, with
    comments. As in kubectl, a kind may also be written as deployments.apps, and stand apart from
    the name. Nothing is changed.

    Of a pod, the output says which remedies were applied and by which policy, what was left out and
    why, which symptoms a scan finds, and which nodes still need the remedies. Of a workload, it
    says what the next pod would get. It names what could not be read, and the missing rights.
    With --manifests, the object is looked for in these files.

    Exit codes: 0 success; 2 if the target does not exist or cannot be read.
    """
    # Imported here, because the completion of a command line needs no models.
    from webhook.core.types import Json
    from webhook.inspect.explain.report import Explanation, as_text
    from webhook.inspect.explain.target import ObjectTarget, TargetError, explain_word, parse_target

    try:
        parsed = parse_target("/".join(target), view.cluster.flags)
    except TargetError as error:
        raise InputError(str(error)) from None
    if not isinstance(parsed, ObjectTarget):
        answer: Explanation | Json = explain_word(parsed)
    else:
        from webhook.core.pod import DECODE_ERRORS
        from webhook.inspect.explain.explanation import NotFoundError
        from webhook.inspect.explain.explanation import explain as explain_object
        from webhook.inspect.object_readers import DumpReader, PagedReader

        namespace = None if all_namespaces else namespace
        with open_cluster(view, namespaces=(namespace,) if namespace else ()) as opened:
            opened.check_is_whole()
            known, source = opened.known, opened.source
            for problem in known.problems:
                echo_message(str(problem))
            try:
                if isinstance(source, Connection):
                    chosen = None if all_namespaces else namespace or known.namespace
                    live = PagedReader(source.server)
                    answer = source.run(explain_object(live, parsed, chosen, known))
                else:
                    dump = DumpReader(source)
                    answer = asyncio.run(explain_object(dump, parsed, namespace, known))
            except NotFoundError as error:
                raise InputError(str(error)) from None
            except DECODE_ERRORS as error:
                raise InputError(f"{parsed.title}: the pod cannot be read: {error}") from None
    if output == "text":
        echo_text(as_text(answer))
    else:
        emit(answer, output)
