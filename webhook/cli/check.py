"""The command `podsettle check`, which reports errors in policies and other manifests."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import click

from webhook.cli.check_reports import as_junit, as_sarif
from webhook.cli.echo import echo, echo_message, echo_text, emit
from webhook.cli.open_cluster import read_cluster_if_any
from webhook.cli.options import (
    InputError,
    ViewChoice,
    namespace_option,
    output_option,
    paths_argument,
    view_options,
)
from webhook.cluster.manifest_loader import SUFFIXES, ManifestsError, files_of
from webhook.cluster.manifests import STDIN, read_manifests
from webhook.core.cluster.remedy_need import NEED_PHRASES, list_nodes, survey
from webhook.core.defects.defect import DefectStatus
from webhook.core.export.native_policies import export
from webhook.core.pod import SpecFields
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.shadowed_remedies import shadowed_remedies
from webhook.core.policy.snapshot import Snapshot
from webhook.core.policy.still_needed import all_nodes, still_needed
from webhook.core.policy.validation_errors import ManifestProblem
from webhook.core.remedies import REMEDIES
from webhook.inspect.known_cluster import KnownCluster


@click.command()
@paths_argument
@view_options
@namespace_option
@click.option("-v", "--verbose", is_flag=True, help="Print what is needed and exportable too.")
@output_option(
    "text",
    "json",
    "yaml",
    "sarif",
    "junit",
    about="text: one line for each problem, as FILE:LINE: PATH: PROBLEM. json, yaml: a list of "
    "problems. sarif: for code scanning. junit: a test for each file.",
)
@click.pass_context
def check(
    context: click.Context,
    paths: tuple[Path, ...],
    view: ViewChoice,
    namespace: str | None,
    verbose: bool,
    output: str,
) -> None:
    """Check policies and other manifests for errors.

    Each PATH is a file, a directory, or - for standard input. The output names the file, the line
    and the path of each problem.

    Hints on standard error do not change the exit code. They name remedies that never act because
    another policy sets them first, and policies that the nodes no longer need. If the cluster of
    the kubeconfig answers, they also name RuntimeClasses, runtime handlers, labels of nodes and
    namespaces that the cluster lacks. Without a cluster, only the manifests are checked.

    Exit codes: 0 no problem; 1 a problem was found; 2 another error.
    """
    try:
        files = [file for path in paths for file in ([path] if path == STDIN else files_of([path]))]
        read = read_manifests(files, sys.stdin.buffer)
    except ManifestsError as error:
        raise InputError(str(error)) from None
    order = {"stdin" if file == STDIN else str(file): at for at, file in enumerate(files)}
    problems = sorted(read.problems, key=lambda each: (order[each.source], each.line))
    checked = read.view
    names = [policy.metadata.name for policy in checked.policies.documents]
    if not names and not problems:
        kinds = ", ".join(f"*{suffix}" for suffix in SUFFIXES)
        message = f"no SettlePolicy found ({kinds}; subdirectories are not read)"
        problems.append(ManifestProblem(", ".join(map(str, paths)), 0, message))
    needed = {
        name for policy in checked.policies.documents for name in policy.spec.named_namespaces
    }
    needed |= {namespace} if namespace is not None else set()
    cluster, why_unread = read_cluster_if_any(view, needed)
    if output == "text":
        fine = "1 policy is fine" if len(names) == 1 else f"{len(names)} policies are fine"
        count = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}; " if problems else ""
        echo_message(f"{count}{fine}")
        for problem in problems:
            echo(str(problem))
    if why_unread:
        echo_message(f"not compared with a cluster: {why_unread}")
    for hint in _hints(checked, cluster, namespace, verbose):
        echo_message(hint)
    if output in ("json", "yaml"):
        keys = ("source", "line", "path", "message")
        emit([{key: getattr(each, key) for key in keys} for each in problems], output)
    elif output == "sarif":
        emit(as_sarif(problems), "json")
    elif output == "junit":
        echo_text(as_junit(problems, order))
    if problems:
        context.exit(1)


def _hints(
    checked: Snapshot, cluster: KnownCluster | None, namespace: str | None, verbose: bool
) -> Iterator[str]:
    """Yield hints about valid policies on which their author should act. If verbose, all hints.

    `checked` are the checked objects. `cluster` is the cluster for which they are, or None if there
    is none. `namespace` is one that has to exist there.
    """
    policies, view, where = checked.policies.documents, checked, "among the manifests"
    all_classes = bool(checked.runtime_classes)
    if cluster is not None:
        where, seen = f"in {cluster.title}", cluster.view
        all_classes = cluster.lists("runtimeclasses")
        view = dataclasses.replace(
            seen,
            policies=seen.policies.replaced(policies),
            namespaces={**seen.namespaces, **checked.namespaces},
            runtime_classes={**seen.runtime_classes, **checked.runtime_classes},
            nodes=checked.nodes if checked.nodes.all else seen.nodes,
        )
        if unread := [each for each in cluster.unread if each.is_denied]:
            kinds = ", ".join(each.resource for each in unread)
            rights = ", ".join(str(each.right) for each in unread)
            yield f"not compared with the {kinds} of {cluster.title}: needs: {rights}"
    names = [policy.metadata.name for policy in policies]
    for policy in policies:
        yield from _effect_hints(policy)
        yield from _class_hints(policy, view, where, all_classes=all_classes)
    if cluster is not None and cluster.lists("namespaces"):
        for policy in policies:
            for name in sorted(policy.spec.named_namespaces.difference(view.namespaces)):
                yield f"{policy.metadata.name}: namespace {name!r} is not {where}"
        if namespace is not None and namespace not in view.namespaces:
            yield f"namespace {namespace!r} is not {where}"
    yield from _shadowed_hints(names, view)
    yield from _need_hints(policies, view, verbose)
    if verbose:
        yield from _export_hints(names, view)


def _effect_hints(policy: SettlePolicy) -> Iterator[str]:
    """Yield hints about settings without an effect, and those of the remedies."""
    spec, name = policy.spec, policy.metadata.name
    images = spec.image_config
    if images.lookup == "Never" and (images.registries or images.mirrors):
        yield (
            f"{name}: registries and mirrors of imageConfig have no effect with lookup Never: "
            "set lookup: Registry"
        )
    for remedy, settings in spec.settings().items():
        yield from (f"{name}: {hint}" for hint in REMEDIES[remedy].hints(settings))
        if images.lookup == "Never" and REMEDIES[remedy].needs_entrypoints:
            yield (
                f"{name}: {remedy} skips containers without a command (NoCommand), and most "
                "servers have none: set imageConfig with lookup: Registry"
            )


def _class_hints(
    policy: SettlePolicy, view: Snapshot, where: str, *, all_classes: bool
) -> Iterator[str]:
    """Yield hints about the RuntimeClasses that a policy names, and about their nodes.

    `all_classes` says whether a class that is not in the view does not exist. `where` says where it
    was looked for, such as `in the cluster`.
    """
    for name in policy.spec.runtime_classes():
        subject, info = f"{policy.metadata.name}: ", view.runtime_classes.get(name)
        if info is None:
            if all_classes:
                yield f"{subject}RuntimeClass {name!r} is not {where}"
            continue
        clause = info.no_matching_node(view.nodes.all) if view.nodes.all else ""
        if clause:
            yield f"{subject}RuntimeClass {name!r}: {clause}"
        selector = SpecFields(node_selector=dict(info.node_selector))
        if view.nodes.lacks_handler(info.handler, selector):
            yield (
                f"{subject}none of the nodes of RuntimeClass {name!r} lists its handler "
                f"{info.handler!r}, so the remedy is skipped: podsettle node-config"
            )


def _shadowed_hints(names: Collection[str], view: Snapshot) -> Iterator[str]:
    """Yield a hint for each remedy that never acts because another policy sets it first.

    Hints that concern none of the policies with these names are left out.
    """
    for policy, remedy, by in shadowed_remedies(view.policies.documents):
        if policy in names or by in names:
            yield (
                f"{policy}: {remedy} never acts, because {by} sets it first for the same pods: "
                "raise the priority of the policy, or narrow its selectors"
            )


def _need_hints(policies: Iterable[SettlePolicy], view: Snapshot, verbose: bool) -> Iterator[str]:
    """Yield a line for each policy that the nodes no longer need.

    If verbose, also one for each other policy, and for each defect with nodes of unknown releases.
    Without nodes, yield nothing, because it is not known what runs in the cluster.
    """
    if not view.nodes.all:
        return
    of_cluster = all_nodes(view)
    remedies: set[str] = set()
    for policy in policies:
        need = still_needed(policy, of_cluster)
        if verbose or need.status == "False":
            yield f"{policy.metadata.name}: {NEED_PHRASES[need.status]}: {need.message}"
        remedies.update(policy.spec.settings())
    for defect in view.nodes.defects if verbose else ():
        unverified = survey(view.nodes.pools, defect)[DefectStatus.UNVERIFIED]
        if unverified and not remedies.isdisjoint(defect.remedies):
            yield (
                f"{defect.id}: not affected, unverified: {list_nodes(unverified, defect)}; this "
                "podsettle does not know these releases yet"
            )


def _export_hints(names: Collection[str], view: Snapshot) -> Iterator[str]:
    """Yield a line that says which of the policies with these names `podsettle export` prints."""
    found = export(view, names=names)
    partly = {each.policy for each in found.not_native}
    whole = [name for name in names if name not in partly]
    clauses = [f"can print the whole of {', '.join(whole)}"] if whole else []
    if partly:
        left_out = ", ".join(f"{each.policy}/{each.remedy}" for each in found.not_native)
        clauses.append(f"cannot print {left_out}")
    if clauses:
        yield f"podsettle export {', and '.join(clauses)}"
