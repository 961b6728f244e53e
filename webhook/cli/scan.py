"""The command `podsettle scan`, which looks for defects of nodes and for pods that suffer."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from webhook.cli.open_cluster import OpenCluster, open_cluster
from webhook.cli.options import InputError, ViewChoice, view_options
from webhook.core.constants import OBJECT_NAME
from webhook.core.printable import printable
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
    type=click.Choice(["text", "json", "html"]),
    default="text",
    show_default=True,
    help="html: one file with pictures, which needs no network.",
)
@view_options
@click.pass_context
def scan(context: click.Context, namespace: str | None, output: str, view: ViewChoice) -> None:
    """Look for defects of nodes, and for pods that suffer from them.

    The scan only reads. It needs no webhook in the cluster. With --namespace, only the pods of this
    namespace are read. The paths of --manifests may also contain pods, events and certificate
    requests, such as the output of `kubectl get nodes,runtimeclasses,namespaces,pods,events,csr -A
    -o json`.

    Exit codes: 0 nothing was found; 1 a symptom was found, or a pod is not settled; 2 an error, or
    nothing could be read.
    """
    progress = _Progress()
    with open_cluster(view, namespaces=[namespace] if namespace else []) as opened:
        if namespace is not None and _is_missing(opened.known, namespace):
            raise InputError(f"scan: namespace {namespace} does not exist")
        report = _scan(opened, view, namespace, progress.show)
    progress.clear()
    if _saw_nothing(report):
        limits = ", ".join(area.limit for area in report.areas)
        raise InputError(f"scan: nothing could be read: {limits}")
    click.echo(_render(report, output), nl=False)
    if report.found:
        context.exit(1)


def _scan(
    opened: OpenCluster,
    choice: ViewChoice,
    namespace: str | None,
    on_progress: Callable[[str], None],
) -> ScanReport:
    # Imported here, because the imports take time and the help needs none of them.
    with imports_excluded_from_gc():
        from webhook.inspect.paged import PagedReader
        from webhook.inspect.scan.collect import scan as scan_cluster
        from webhook.inspect.scan.dump import DumpReader

    cluster, connection = opened
    if connection is None:
        reader = DumpReader(choice.manifests)
        report = asyncio.run(scan_cluster(reader, cluster, namespace))
        for problem in reader.problems:
            click.echo(f"podsettle: {printable(problem)}", err=True)
        if reader.problems and _saw_nothing(report):
            raise click.exceptions.Exit(2)  # The messages say why.
        return report
    live_reader = PagedReader(connection.server, on_progress)
    return connection.run(scan_cluster(live_reader, cluster, namespace))


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


def _render(report: ScanReport, output: str) -> str:
    if output == "html":
        from webhook.inspect.scan.html import render_html

        return render_html(report)
    if output == "json":
        from webhook.inspect.scan.model import to_json

        return to_json(report)
    from webhook.inspect.scan.text import render_text

    return render_text(report)


class _Progress:
    """A line on standard error that says how far a command is, if that is a terminal."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._shown = False

    def show(self, text: str) -> None:
        """Replace the line."""
        if self._is_terminal:
            self._shown = True
            self._write(f"\r\x1b[K{text}")

    def clear(self) -> None:
        """Remove the line."""
        if self._shown:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        # Without `color`, click would remove the code that clears the line. It is no colour.
        click.echo(text, err=True, nl=False, color=True)
