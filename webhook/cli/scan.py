"""The command `podsettle scan`, which looks for defects of nodes and for pods that suffer."""

from __future__ import annotations

import asyncio
import shlex
from typing import TYPE_CHECKING

import click

from webhook.cli.completions import complete_namespaces
from webhook.cli.echo import Progress, echo_document, echo_message, echo_text
from webhook.cli.native_proposals import mutating_version, print_native
from webhook.cli.open_cluster import Connection, OpenCluster, open_cluster
from webhook.cli.options import InputError, ViewChoice, view_options
from webhook.cluster.progress import OnProgress
from webhook.core.constants import OBJECT_NAME
from webhook.inspect.cluster_flags import podsettle
from webhook.process_memory import imports_excluded_from_gc

if TYPE_CHECKING:
    from webhook.inspect.known_cluster import KnownCluster
    from webhook.inspect.pod_selection import PodSelection
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
    shell_complete=complete_namespaces,
    help="Read the pods and events of this namespace only. The default is all namespaces.",
)
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
    metavar="SELECTOR",
    help="Look only at pods with these labels, such as app=web,tier in (a,b).",
)
@click.option(
    "--field-selector",
    default="",
    metavar="SELECTOR",
    help="Look only at pods with these fields, such as spec.nodeName=worker-1.",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "wide", "name", "json", "yaml", "html", "policy"]),
    default="text",
    show_default=True,
    help="wide: the same as -v. name: the workloads or pods found, for `xargs -L1 podsettle "
    "explain`. html: one file with pictures, which needs no network. policy: only the policies "
    "that the scan proposes, as YAML.",
)
@click.option(
    "--native",
    is_flag=True,
    help="With -o policy: print policies that the API server evaluates itself. They need no "
    "webhook, and only report.",
)
@click.option("--mutate", is_flag=True, help="With --native: policies that change new pods.")
@click.option("-v", "--verbose", is_flag=True, help="Print the evidence and all nodes too.")
@view_options
@click.pass_context
def scan(
    context: click.Context,
    namespace: str | None,
    all_namespaces: bool,
    selector: str,
    field_selector: str,
    output: str,
    native: bool,
    mutate: bool,
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
    Without a webhook: `podsettle scan -o policy --native --mutate | kubectl apply -f -`.

    Exit codes: 0 nothing was found; 1 a symptom was found, or a pod is not settled; 2 an error, or
    nothing could be read.
    """
    if native and output != "policy":
        raise click.UsageError("--native has no effect without -o policy")
    if mutate and not native:
        raise click.UsageError("--mutate has no effect without -o policy --native")
    namespace = None if all_namespaces else namespace
    pods = _pod_selection(selector, field_selector)
    arguments = _repeated(view, namespace, pods)
    namespaces = [namespace] if namespace else []
    with (
        Progress() as progress,
        open_cluster(view, namespaces=namespaces, on_progress=progress.show) as opened,
    ):
        if namespace is not None and _is_missing(opened.known, namespace):
            raise InputError(f"scan: namespace {namespace} does not exist")
        version = mutating_version(opened, mutate=mutate) if native else ""
        report = _scan(opened, namespace, pods, progress.show, arguments)
        advice = "" if namespace is not None else _advice_on_rights(opened, report)
    if advice and not _saw_nothing(report):
        echo_message(advice)
    if _saw_nothing(report):
        if advice:
            raise InputError(advice)
        limits = ", ".join(area.limit for area in report.areas)
        if opened.known.is_live and namespace is None:
            limits += "; with rights in one namespace, give -n NAMESPACE"
        raise InputError(f"scan: nothing could be read: {limits}")
    if not report.pods and _looked_at(report, "pods"):
        where = f"in namespace {namespace}" if namespace else "in any namespace"
        selected = "" if pods.selects_all else f" with {shlex.join(_selectors(pods))}"
        echo_message(f"scan: no pod was found {where}{selected}")
    if native and any(symptom.policy for symptom in report.symptoms):
        print_native(report, opened.known, version, mutate=mutate)
    else:
        _print(report, output, verbose, list(map(str, view.manifests)))
    if report.found:
        context.exit(1)


def _pod_selection(selector: str, field_selector: str) -> PodSelection:
    """Return the selection of pods by the flags. Raise InputError."""
    from webhook.inspect.pod_selection import PodSelection, SelectorError

    pods = PodSelection(selector, field_selector)
    try:
        pods.check()
    except SelectorError as error:
        raise InputError(f"scan: {error}") from None
    return pods


def _repeated(view: ViewChoice, namespace: str | None, pods: PodSelection) -> list[str]:
    """Return the arguments with which a printed command looks at the same objects."""
    words = [word for path in view.manifests for word in ("--manifests", str(path))]
    words += ["-n", namespace] if namespace else []
    return words + _selectors(pods)


def _selectors(pods: PodSelection) -> list[str]:
    """Return the flags that select the pods."""
    flags = {"-l": pods.labels, "--field-selector": pods.fields}
    return [word for flag, value in flags.items() if value for word in (flag, value)]


def _scan(
    opened: OpenCluster,
    namespace: str | None,
    pods: PodSelection,
    on_progress: OnProgress,
    arguments: list[str],
) -> ScanReport:
    # Imported here, because the imports take time and the help needs none of them.
    with imports_excluded_from_gc():
        from webhook.inspect.paged import PagedReader
        from webhook.inspect.scan.collect import scan as scan_cluster
        from webhook.inspect.scan.dump import DumpReader
        from webhook.inspect.scan.templates import LiveTemplates

    cluster, source = opened
    if isinstance(source, Connection):
        live_reader = PagedReader(source.server, on_progress, pods)
        templates = LiveTemplates(source.server)
        return source.run(
            scan_cluster(live_reader, cluster, namespace, templates=templates, arguments=arguments)
        )
    reader = DumpReader(source, on_progress, pods)
    report = asyncio.run(scan_cluster(reader, cluster, namespace, arguments=arguments))
    for problem in reader.problems:
        echo_message(problem)
    if reader.problems and _saw_nothing(report):
        raise click.exceptions.Exit(2)  # The messages say why.
    return report


def _advice_on_rights(opened: OpenCluster, report: ScanReport) -> str:
    """Return what to do if the user may list the pods of one namespace only. Empty otherwise."""
    from webhook.cluster.rights import access_to
    from webhook.inspect.scan.resources import PODS

    denied = any(area.name == PODS.name and area.right for area in report.areas)
    if opened.connection is None or not denied:
        return ""
    namespace = opened.known.namespace
    right = PODS.right(namespace)
    permissions = opened.connection.run(access_to(opened.connection.server, [right]))
    if permissions[right] != "allowed":
        return ""
    command = opened.known.flags.command(podsettle("scan", "-n", namespace))
    return f"scan: you may list the pods of namespace {namespace}, not of all namespaces: {command}"


def _saw_nothing(report: ScanReport) -> bool:
    """Return whether neither pods nor nodes could be read, so that nothing can be found."""
    return not _looked_at(report, "pods", "nodes")


def _looked_at(report: ScanReport, *names: str) -> bool:
    """Return whether at least a part of one of these areas could be read."""
    with imports_excluded_from_gc():
        from webhook.inspect.findings import Looked
    looked = (area.looked for area in report.areas if area.name in names)
    return any(each is not Looked.NOT_LOOKED_AT for each in looked)


def _is_missing(cluster: KnownCluster, namespace: str) -> bool:
    """Return whether the cluster has no such namespace. Manifests may omit it."""
    return (
        cluster.is_live
        and cluster.has_read("namespaces")
        and namespace not in cluster.view.namespaces
    )


def _print(report: ScanReport, output: str, verbose: bool, manifests: list[str]) -> None:
    if output == "html":
        from webhook.inspect.scan.html import render_html

        echo_text(render_html(report))
    elif output in ("json", "yaml"):
        from webhook.inspect.scan.model import to_json

        echo_document(to_json(report), output)
    elif output == "name":
        from webhook.inspect.scan.text import render_names

        echo_text(render_names(report, manifests))
    elif output == "policy":
        from webhook.inspect.scan.text import render_policies

        policies = render_policies(report)
        echo_text(policies)
        if not policies:
            echo_message("scan: no policy is proposed; without -o, the scan says why")
    else:
        from webhook.inspect.scan.text import render_text

        echo_text(render_text(report, details=verbose or output == "wide"))
