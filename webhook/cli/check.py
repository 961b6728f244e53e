"""The command `podsettle check`, which reports errors in policies and other manifests."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from webhook.cli.check_reports import as_junit, as_sarif
from webhook.cli.echo import echo, echo_document, echo_json, echo_message, echo_text
from webhook.cli.open_cluster import open_cluster_if_any
from webhook.cli.options import (
    InputError,
    ViewChoice,
    namespace_option,
    paths_argument,
    verbose_option,
    view_options,
)
from webhook.cli.policy_hints import (
    export_hints,
    missing_handler_hints,
    missing_node_label_hints,
    named_namespaces,
    policy_hints,
    shadowed_hints,
    unknown_class_hints,
    unknown_namespace_hints,
)
from webhook.cli.policy_need_lines import policy_need_lines
from webhook.cluster.manifest_loader import (
    SUFFIXES,
    ManifestObject,
    ManifestsError,
    duplicates,
    manifest_files,
    parse_manifest,
    read_manifest,
)
from webhook.core.cluster.nodes import Nodes
from webhook.core.constants import KIND
from webhook.core.policy.coverage import PolicySet
from webhook.core.policy.model import SettlePolicy
from webhook.core.policy.snapshot import Snapshot
from webhook.core.policy.validation_errors import ManifestProblem
from webhook.core.preview.policies import replace_policies
from webhook.inspect.known_cluster import KnownCluster


@click.command()
@paths_argument
@view_options
@verbose_option
@namespace_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml", "sarif", "junit"]),
    default="text",
    show_default=True,
    help="text: one line for each problem, as FILE:LINE: PATH: PROBLEM. json, yaml: a list of "
    "problems. sarif: for code scanning. junit: a test for each file.",
)
@click.pass_context
def check(
    context: click.Context,
    paths: tuple[Path, ...],
    view: ViewChoice,
    namespace: str | None,
    output: str,
) -> None:
    """Check policies and other manifests for errors.

    Each PATH is a file, a directory, or - for standard input. The output names the file, the line
    and the path of each problem.

    Hints on standard error do not change the exit code. They name remedies that never act because
    another policy sets them first, the policies that the nodes still need, and those that
    `podsettle export` can print. If the cluster of
    the kubeconfig answers, they also name RuntimeClasses, runtime handlers, labels of nodes and
    namespaces that the cluster lacks. Without a cluster, only the manifests are checked.

    Exit codes: 0 no problem; 1 a problem was found; 2 another error.
    """
    objects: list[ManifestObject] = []
    problems: list[ManifestProblem] = []
    sources: list[str] = []
    for source, (file_objects, file_problems) in _read_manifests(paths):
        sources.append(source)
        objects += file_objects
        problems += file_problems
    policies = {item.name: item.model for item in reversed(objects) if item.kind == KIND}
    problems += duplicates(objects)
    if not policies and not problems:
        where = ", ".join(map(str, paths))
        kinds = ", ".join(f"*{suffix}" for suffix in SUFFIXES)
        message = f"no SettlePolicy found ({kinds}; subdirectories are not read)"
        problems.append(ManifestProblem(where, 0, message))
    problems = _in_order_of_lines(problems, sources)
    needed = {name for policy in policies.values() for name in named_namespaces(policy)}
    needed |= {namespace} if namespace is not None else set()
    with open_cluster_if_any(view, needed) as cluster:
        for line in _hints(list(policies.values())[::-1], _by_kind(objects), cluster, namespace):
            echo_message(line)
    if output in ("json", "yaml"):
        echo_document(json.dumps([_as_json(problem) for problem in problems], indent=2), output)
    elif output == "sarif":
        echo_json(as_sarif(problems))
    elif output == "junit":
        echo_text(as_junit(problems, sources))
    else:
        for problem in problems:
            echo(str(problem))
        echo_message(_summary(len(policies), len(problems)))
    if problems:
        context.exit(1)


def _read_manifests(
    paths: tuple[Path, ...],
) -> Iterator[tuple[str, tuple[list[ManifestObject], tuple[ManifestProblem, ...]]]]:
    """Yield the name, the objects and the problems of each file.

    Raises InputError for an invalid path.
    """
    for path in paths:
        if str(path) == "-":
            yield "stdin", parse_manifest(sys.stdin.buffer.read(), "stdin")
            continue
        if not path.exists():
            raise InputError(f"{path}: no such file or directory")
        try:
            files = manifest_files(path) if path.is_dir() else [path]
        except ManifestsError as error:
            raise InputError(str(error)) from None
        for file in files:
            yield str(file), read_manifest(file)


def _in_order_of_lines(
    problems: Iterable[ManifestProblem], sources: Iterable[str]
) -> list[ManifestProblem]:
    """Return problems in the order of files and lines. Those of one line keep their order."""
    order = {source: index for index, source in reversed(list(enumerate(sources)))}
    last = len(order)
    return sorted(problems, key=lambda each: (order.get(each.source, last), each.line))


def _by_kind(objects: Iterable[ManifestObject]) -> dict[str, dict[str, Any]]:
    """Return the objects of manifests by kind and name. The first object of a name counts."""
    found: dict[str, dict[str, Any]] = {}
    for item in objects:
        found.setdefault(item.kind, {}).setdefault(item.name, item.model)
    return found


def _hints(
    policies: Sequence[SettlePolicy],
    manifests: Mapping[str, Mapping[str, Any]],
    cluster: KnownCluster | None,
    namespace: str | None,
) -> Iterator[str]:
    """Yield hints about valid policies that may not have the effect that their author wants.

    `manifests` are the checked objects by kind and name. `cluster` is the cluster for which they
    are, or None if there is none. `namespace` is one that has to exist there.
    """
    if cluster is not None:
        unread = [each for each in cluster.unread if each.is_denied]
        if unread:
            names = ", ".join(each.resource for each in unread)
            rights = ", ".join(str(each.right) for each in unread)
            yield f"not compared with the {names} of {cluster.title}: needs: {rights}"
    for policy in policies:
        yield from policy_hints(policy)
    classes, nodes = manifests.get("RuntimeClass", {}), manifests.get("Node", {})
    namespaces = manifests.get("Namespace", {})
    all_policies: Iterable[SettlePolicy] = policies
    known_nodes = Nodes(nodes.values())
    where = "among the manifests"
    if cluster is not None:
        where = f"in {cluster.title}"
        classes = {**cluster.view.runtime_classes, **classes}
        namespaces = {**cluster.view.namespaces, **namespaces}
        known_nodes = known_nodes if nodes else cluster.view.nodes
        all_policies = replace_policies(cluster.view.policies, policies).documents
    if classes if cluster is None else cluster.lists("runtimeclasses"):
        yield from unknown_class_hints(policies, classes, where)
    if cluster is not None and cluster.lists("namespaces"):
        yield from unknown_namespace_hints(policies, namespaces, where)
        if namespace is not None and namespace not in namespaces:
            yield f"namespace {namespace!r} is not {where}"
    yield from missing_node_label_hints(policies, classes, known_nodes)
    yield from missing_handler_hints(policies, classes, known_nodes)
    yield from shadowed_hints(policies, all_policies)
    yield from policy_need_lines(policies, known_nodes, classes)
    view = Snapshot(runtime_classes=classes, nodes=known_nodes, policies=PolicySet(all_policies))
    yield from export_hints(policies, view)


def _as_json(problem: ManifestProblem) -> dict[str, str | int]:
    return {
        "source": problem.source,
        "line": problem.line,
        "path": problem.path,
        "message": problem.message,
    }


def _summary(policies: int, problems: int) -> str:
    """Return the last line of output, from the numbers of valid policies and of problems."""
    valid = "1 policy is fine" if policies == 1 else f"{policies} policies are fine"
    if not problems:
        return valid
    return f"{problems} problem{'s' if problems > 1 else ''}; {valid}"
