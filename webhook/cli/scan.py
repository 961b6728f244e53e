"""The command `podsettle scan`, which looks for defects of nodes and for pods that suffer."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import click

from webhook.cli.open_view import OpenView, open_view
from webhook.cli.options import InputError, ViewChoice, view_options
from webhook.core.constants import OBJECT_NAME
from webhook.core.printable import printable
from webhook.process_memory import imports_excluded_from_gc

if TYPE_CHECKING:
    from webhook.cluster.live_view import Unread
    from webhook.inspect.findings import Area
    from webhook.inspect.scan.collect import ScannedCluster
    from webhook.inspect.scan.model import ScanReport
    from webhook.inspect.webhook_calls import WebhookCalls


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
    with open_view(view, namespaces=[namespace] if namespace else []) as opened:
        if namespace is not None and _is_missing(opened, namespace):
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
    opened: OpenView, choice: ViewChoice, namespace: str | None, on_progress: Callable[[str], None]
) -> ScanReport:
    # Imported here, because the imports take time and the help needs none of them.
    with imports_excluded_from_gc():
        from webhook.inspect.paged import PagedReader
        from webhook.inspect.scan.collect import scan as scan_cluster
        from webhook.inspect.scan.dump import DumpReader

    cluster = _cluster(opened, namespace, choice)
    if opened.connection is None:
        reader = DumpReader(choice.manifests)
        report = asyncio.run(scan_cluster(reader, cluster, namespace))
        for problem in reader.problems:
            click.echo(f"podsettle: {printable(problem)}", err=True)
        if reader.problems and _saw_nothing(report):
            raise click.exceptions.Exit(2)  # The messages say why.
        return report
    live_reader = PagedReader(opened.connection.server, on_progress)
    return opened.connection.run(scan_cluster(live_reader, cluster, namespace))


def _saw_nothing(report: ScanReport) -> bool:
    """Return whether nothing of the cluster could be read."""
    with imports_excluded_from_gc():
        from webhook.inspect.findings import Looked
    return all(area.looked is Looked.NOT_LOOKED_AT for area in report.areas)


def _is_missing(opened: OpenView, namespace: str) -> bool:
    """Return whether the cluster has no such namespace. Manifests may omit it."""
    live = opened.live
    return (
        live is not None and live.has_read("namespaces") and namespace not in live.view.namespaces
    )


def _cluster(opened: OpenView, namespace: str | None, choice: ViewChoice) -> ScannedCluster:
    """Return what the view contains, and which of its kinds were looked at."""
    with imports_excluded_from_gc():
        from webhook.inspect.cluster_flags import ClusterFlags
        from webhook.inspect.findings import Area, Looked
        from webhook.inspect.scan.collect import ScannedCluster
        from webhook.inspect.webhook_calls import read_webhook_calls

    view = opened.view
    if opened.live is not None:
        limits = {each.resource: _unread_area(each) for each in opened.live.unread}
        # The scan of one namespace needs only this namespace, which the view then has.
        if not opened.live.lists_namespaces and namespace is None:
            limits.setdefault("namespaces", _named_area(view.namespaces))
        areas = tuple(
            limits.get(kind, Area(kind, Looked.LOOKED_AT))
            for kind in ("nodes", "runtimeclasses", "namespaces", "settlepolicies")
        )
    else:
        counts = {
            "nodes": len(view.nodes.all),
            "runtimeclasses": len(view.runtime_classes),
            "namespaces": len(view.namespaces),
            "settlepolicies": len(view.policies),
        }
        areas = tuple(
            Area(kind, Looked.LOOKED_AT)
            if count
            else Area(kind, Looked.NOT_LOOKED_AT, "the manifests contain none")
            for kind, count in counts.items()
        )
    calls = None
    if opened.connection is not None and opened.configurations is not None:
        calls = opened.connection.run(read_webhook_calls(opened.configurations))
        areas += (_configurations_area(calls),)
    notes = list(map(str, opened.problems))
    if opened.why_image_is_assumed and len(view.policies):
        why = opened.why_image_is_assumed
        notes.append(f"the scan assumes that podsettle has the image of a helper, because {why}")
    return ScannedCluster(
        title=opened.title,
        view=view,
        areas=areas,
        policies=view.policies.documents,
        created=opened.live.created if opened.live is not None else {},
        settings=opened.settings,
        assumes_image=bool(opened.why_image_is_assumed),
        notes=tuple(notes),
        calls=calls,
        flags=ClusterFlags(**choice.cluster),
    )


def _configurations_area(calls: WebhookCalls) -> Area:
    """Return whether the webhook configurations were read."""
    from webhook.inspect.findings import Area, Looked
    from webhook.inspect.webhook_configurations import (
        CONFIGURATIONS_RESOURCE,
        CONFIGURATIONS_RIGHT,
    )

    if calls.readable:
        return Area(CONFIGURATIONS_RESOURCE, Looked.LOOKED_AT)
    right = str(CONFIGURATIONS_RIGHT)
    return Area(CONFIGURATIONS_RESOURCE, Looked.NOT_LOOKED_AT, right=right)


def _named_area(namespaces: Collection[str]) -> Area:
    """Return the area of namespaces that cannot be listed, of which some were read by name."""
    from webhook.cluster.rights import Right
    from webhook.inspect.findings import Area, Looked

    names = ", ".join(sorted(namespaces)) or "none"
    right = str(Right("list", "", "namespaces"))
    return Area("namespaces", Looked.PARTLY, f"only {names}", right)


def _unread_area(unread: Unread) -> Area:
    from webhook.cluster.live_view import NOT_INSTALLED
    from webhook.inspect.findings import Area, Looked

    if unread.why == NOT_INSTALLED:
        return Area(unread.resource, Looked.NOT_LOOKED_AT, unread.why)
    return Area(unread.resource, Looked.NOT_LOOKED_AT, right=str(unread.right))


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
