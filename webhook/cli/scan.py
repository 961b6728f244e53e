"""The command `podsettle scan`, which looks for defects of nodes and for pods that suffer."""

from __future__ import annotations

import asyncio
import shlex
from typing import TYPE_CHECKING

import click

from webhook.cli.echo import Progress, echo_json, echo_message, echo_text
from webhook.cli.open_cluster import Connection, OpenCluster, open_cluster
from webhook.cli.options import InputError, ViewChoice, view_options
from webhook.cluster.progress import OnProgress
from webhook.core.constants import OBJECT_NAME
from webhook.process_memory import imports_excluded_from_gc

if TYPE_CHECKING:
    from webhook.inspect.known_cluster import KnownCluster
    from webhook.inspect.scan.model import ScanReport


def _check_namespace(
    _context: click.Context, parameter: click.Parameter, value: str | None
) -> str | None:
    """Return a name that can stand in a path, or None."""
    if value is not None and not OBJECT_NAME.fullmatch(value):
        raise click.BadParameter(f"{value!r} is not a valid name", param=parameter)
    return value


@click.command()
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    callback=_check_namespace,
    help="Read the pods and events of this namespace only. The default is all namespaces.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "html", "policy"]),
    default="text",
    show_default=True,
    help="html: one file with pictures, which needs no network. policy: only the policies that the "
    "scan proposes, as YAML.",
)
@click.option("-v", "--verbose", is_flag=True, help="Print the evidence and all nodes too.")
@view_options
@click.pass_context
def scan(
    context: click.Context, namespace: str | None, output: str, verbose: bool, view: ViewChoice
) -> None:
    """Look for defects of nodes, and for pods that suffer from them.

    The scan only reads. It needs no webhook in the cluster. With --namespace, only the pods of this
    namespace are read. The paths of --manifests may also contain pods, events and certificate
    requests, such as the output of `kubectl get nodes,runtimeclasses,namespaces,pods,events,csr -A
    -o json`. `--manifests -` reads this output from a pipe. JSON is read much faster than YAML.

    The policies that it proposes report what they would do, and change nothing until their line
    `action: Audit` is deleted. To create them: `podsettle scan -o policy | kubectl apply -f -`.

    Exit codes: 0 nothing was found; 1 a symptom was found, or a pod is not settled; 2 an error, or
    nothing could be read.
    """
    namespaces = [namespace] if namespace else []
    with (
        Progress() as progress,
        open_cluster(view, namespaces=namespaces, on_progress=progress.show) as opened,
    ):
        if namespace is not None and _is_missing(opened.known, namespace):
            raise InputError(f"scan: namespace {namespace} does not exist")
        report = _scan(opened, namespace, view, progress.show)
    if _saw_nothing(report):
        limits = ", ".join(area.limit for area in report.areas)
        raise InputError(f"scan: nothing could be read: {limits}")
    _print(report, output, verbose)
    if report.found:
        context.exit(1)


def _scan(
    opened: OpenCluster, namespace: str | None, choice: ViewChoice, on_progress: OnProgress
) -> ScanReport:
    # Imported here, because the imports take time and the help needs none of them.
    with imports_excluded_from_gc():
        from webhook.inspect.paged import PagedReader
        from webhook.inspect.scan.collect import scan as scan_cluster
        from webhook.inspect.scan.dump import DumpReader
        from webhook.inspect.scan.templates import LiveTemplates

    cluster, source = opened
    words = [f"--manifests {shlex.quote(str(path))}" for path in choice.manifests]
    words += [f"-n {namespace}"] if namespace else []
    arguments = "".join(f" {word}" for word in words)
    if isinstance(source, Connection):
        live_reader = PagedReader(source.server, on_progress)
        templates = LiveTemplates(source.server)
        return source.run(
            scan_cluster(live_reader, cluster, namespace, templates=templates, arguments=arguments)
        )
    reader = DumpReader(source, on_progress)
    report = asyncio.run(scan_cluster(reader, cluster, namespace, arguments=arguments))
    for problem in reader.problems:
        echo_message(problem)
    if reader.problems and _saw_nothing(report):
        raise click.exceptions.Exit(2)  # The messages say why.
    return report


def _saw_nothing(report: ScanReport) -> bool:
    """Return whether nothing of the cluster could be read."""
    with imports_excluded_from_gc():
        from webhook.inspect.findings import Looked
    return all(area.looked is Looked.NOT_LOOKED_AT for area in report.areas)


def _is_missing(cluster: KnownCluster, namespace: str) -> bool:
    """Return whether the cluster has no such namespace. Manifests may omit it."""
    return (
        cluster.is_live
        and cluster.has_read("namespaces")
        and namespace not in cluster.view.namespaces
    )


def _print(report: ScanReport, output: str, verbose: bool) -> None:
    if output == "html":
        from webhook.inspect.scan.html import render_html

        echo_text(render_html(report))
    elif output == "json":
        from webhook.inspect.scan.model import to_json

        echo_json(to_json(report))
    elif output == "policy":
        from webhook.inspect.scan.text import render_policies

        policies = render_policies(report)
        echo_text(policies)
        if not policies:
            echo_message("scan: no policy is proposed; without -o, the scan says why")
    else:
        from webhook.inspect.scan.text import render_text

        echo_text(render_text(report, details=verbose))
