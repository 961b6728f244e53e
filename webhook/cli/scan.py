"""The command `podsettle scan`, which looks for defects of nodes and for pods that suffer."""

from __future__ import annotations

import asyncio
import os
import shlex
from typing import TYPE_CHECKING

import click

from webhook.cli.echo import Progress, echo_message, echo_text, emit
from webhook.cli.open_cluster import Connection, OpenCluster, open_cluster
from webhook.cli.options import InputError, ViewChoice, namespace_flag, output_option, view_options
from webhook.cluster.progress import OnProgress
from webhook.inspect.cluster_flags import podsettle
from webhook.process_memory import imports_excluded_from_gc

if TYPE_CHECKING:
    from webhook.inspect.scan.model import ScanReport


@click.command()
@namespace_flag("Read the pods and events of this namespace only. The default is all namespaces.")
@click.option(
    "-A",
    "--all-namespaces",
    is_flag=True,
    help="Read all namespaces, which is the default. As in kubectl, it overrides -n.",
)
@click.option(
    "-l",
    "--selector",
    default="",
    show_default=False,
    metavar="SELECTOR",
    help="Look only at pods of the cluster with these labels, such as app=web,tier in (a,b).",
)
@click.option(
    "--field-selector",
    default="",
    show_default=False,
    metavar="SELECTOR",
    help="Look only at pods of the cluster with these fields, such as spec.nodeName=worker-1.",
)
@output_option(
    *("text", "wide", "name", "json", "yaml", "html", "policy"),
    about="wide: the same as -v. name: the workloads or pods found, for `xargs -L1 podsettle "
    "explain`. html: one file with pictures, which needs no network. policy: only the policies "
    "that the scan proposes, as YAML.",
)
@click.option(
    "-v", "--verbose", is_flag=True, help="Print more, such as the evidence and all nodes."
)
@view_options
@click.pass_context
def scan(
    context: click.Context,
    namespace: str | None,
    all_namespaces: bool,
    selector: str,
    field_selector: str,
    output: str,
    verbose: bool,
    view: ViewChoice,
) -> None:
    """Look for defects of nodes, and for pods that suffer from them.

    The scan only reads. It needs no webhook in the cluster. With --namespace, only the pods of this
    namespace are read. The paths of --manifests may also contain pods, events and certificate
    requests, such as the output of `kubectl get nodes,runtimeclasses,namespaces,pods,events,csr -A
    -o json`. `--manifests -` reads this output from a pipe. JSON is read much faster than YAML.

    The policies that it proposes report what they would do, and change nothing until their line
    `action: Audit` is deleted. To create them: `podsettle scan -o policy | kubectl create -f -`.
    Without a webhook: `podsettle scan -o policy | podsettle export - | kubectl apply -f -`.

    Exit codes: 0 nothing was found; 1 a symptom was found, or a pod is not settled; 2 an error, or
    nothing could be read.
    """
    namespace = None if all_namespaces else namespace
    flags = {"-l": selector, "--field-selector": field_selector}
    selectors = [word for flag, value in flags.items() if value for word in (flag, value)]
    if selectors and view.manifests:
        raise click.UsageError("-l and --field-selector select pods of a cluster, not of manifests")
    of_namespace = ["-n", namespace] if namespace else []
    arguments = [*view.manifest_flags, *of_namespace, *selectors]
    with (
        Progress() as progress,
        open_cluster(
            view, namespaces=[namespace] if namespace else [], on_progress=progress.show
        ) as opened,
    ):
        opened.check_is_whole()
        known = opened.known
        lists_namespaces = known.is_live and known.has_read("namespaces")
        if namespace and lists_namespaces and namespace not in known.view.namespaces:
            raise InputError(f"scan: namespace {namespace} does not exist")
        selection = {"labelSelector": selector, "fieldSelector": field_selector}
        selection = {key: value for key, value in selection.items() if value}
        report = _scan(opened, namespace, selection, progress.show, arguments)
        advice = "" if namespace is not None else _advice_on_rights(opened, report)
    from webhook.cluster.manifest_loader import SUFFIXES, manifest_files

    for problem in known.problems:
        echo_message(str(problem))
    for path in view.manifests:
        if os.path.isdir(path) and not manifest_files(path):
            kinds = ", ".join(SUFFIXES)
            echo_message(f"{path}: the directory has no file {kinds}; subdirectories are not read")
    if not _looked_at(report, "pods", "nodes"):
        limits = ", ".join(area.limit for area in report.areas)
        if known.is_live and namespace is None:
            limits += "; with rights in one namespace, give -n NAMESPACE"
        raise InputError(advice or f"scan: nothing could be read: {limits}")
    if selectors and not _looked_at(report, "pods"):  # They may be malformed.
        limits = ", ".join(area.limit for area in report.areas if area.name == "pods")
        raise InputError(advice or f"scan: {shlex.join(selectors)}: {limits}")
    if advice:
        echo_message(advice)
    malformed = not report.pods and any(
        area.name == "pods" and area.looked == "partly" for area in report.areas
    )
    if not report.pods and not malformed and _looked_at(report, "pods"):
        if namespace and not (known.is_live or namespace in known.view.namespaces):
            raise InputError(f"scan: namespace {namespace} is not in {known.title}")
        where = f"in namespace {namespace}" if namespace else "in any namespace"
        selected = f" with {shlex.join(selectors)}" if selectors else ""
        echo_message(f"scan: no pod was found {where}{selected}")
    _print(report, output, verbose, view)
    if report.found or malformed:
        context.exit(1 if report.found else 2)


def _scan(
    opened: OpenCluster,
    namespace: str | None,
    selection: dict[str, str],
    on_progress: OnProgress,
    arguments: list[str],
) -> ScanReport:
    # Imported here, because the imports take time and the help needs none of them.
    with imports_excluded_from_gc():
        from webhook.inspect.object_readers import DumpReader, PagedReader
        from webhook.inspect.scan.collect import scan as scan_cluster

    known, source = opened
    if isinstance(source, Connection):
        live = PagedReader(source.server, on_progress, selection)
        return source.run(scan_cluster(live, known, namespace, arguments=arguments))
    dump = DumpReader(source, on_progress)
    report = asyncio.run(scan_cluster(dump, known, namespace, arguments=arguments))
    for problem in dump.problems:
        echo_message(problem)
    if dump.problems and not _looked_at(report, "pods", "nodes"):
        raise click.exceptions.Exit(2)  # The messages say why.
    return report


def _advice_on_rights(opened: OpenCluster, report: ScanReport) -> str:
    """Return what to do if the user may list the pods of one namespace only. Empty otherwise."""
    from webhook.cluster.rights import access_to
    from webhook.inspect.object_readers import PODS

    denied = any(area.name == PODS.name and area.right for area in report.areas)
    if opened.connection is None or not denied:
        return ""
    namespace = opened.known.namespace
    right = PODS.right(namespace)
    if opened.connection.run(access_to(opened.connection.server, right)) != "allowed":
        return ""
    command = opened.known.flags.command(podsettle("scan", "-n", namespace))
    return f"scan: you may list the pods of namespace {namespace}, not of all namespaces: {command}"


def _looked_at(report: ScanReport, *names: str) -> bool:
    """Return whether at least a part of one of these areas could be read."""
    return any(area.looked != "not_looked_at" for area in report.areas if area.name in names)


def _print(report: ScanReport, output: str, verbose: bool, view: ViewChoice) -> None:
    if output == "html":
        from webhook.inspect.scan.html import render_html

        echo_text(render_html(report))
        return
    if output in ("json", "yaml"):
        import msgspec

        emit(msgspec.to_builtins(report), output)
        return
    from webhook.inspect.scan.text import render_names, render_policies, render_text

    if output == "name":
        echo_text(render_names(report, view.manifest_flags, *view.cluster.flags.words()))
    elif output == "policy":
        echo_text(policies := render_policies(report))
        if not policies:
            echo_message("scan: no policy is proposed; without -o, the scan says why")
    else:
        echo_text(render_text(report, details=verbose or output == "wide"))
