"""The command `podsettle check`, which reports errors in policies and other manifests."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from webhook.cli.check_hints import by_kind, hints
from webhook.cli.open_view import open_view_if_any
from webhook.cli.options import (
    InputError,
    ViewChoice,
    namespace_option,
    paths_argument,
    view_options,
)
from webhook.cli.policy_hints import named_namespaces
from webhook.cluster.manifest_loader import (
    SUFFIXES,
    ManifestObject,
    ManifestsError,
    duplicates,
    manifest_files,
    parse_manifest,
    read_manifest,
)
from webhook.core.constants import KIND
from webhook.core.policy.errors import ManifestProblem
from webhook.core.printable import printable


@click.command()
@paths_argument
@view_options
@namespace_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="text: one line for each problem, as FILE:LINE: PATH: PROBLEM. json: a list of problems.",
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
    another policy sets them first, and the policies that the nodes still need. If the cluster of
    the kubeconfig answers, they also name RuntimeClasses, runtime handlers and namespaces that the
    cluster lacks. Without a cluster, only the manifests are checked.

    Exit codes: 0 no problem; 1 a problem was found; 2 another error.
    """
    objects: list[ManifestObject] = []
    problems: list[ManifestProblem] = []
    for file_objects, file_problems in _read_manifests(paths):
        objects += file_objects
        problems += file_problems
    policies = {item.name: item.model for item in reversed(objects) if item.kind == KIND}
    problems += duplicates(objects)
    if not policies and not problems:
        where = ", ".join(map(str, paths))
        kinds = ", ".join(f"*{suffix}" for suffix in SUFFIXES)
        message = f"no SettlePolicy found ({kinds}; subdirectories are not read)"
        problems.append(ManifestProblem(where, 0, message))
    needed = {name for policy in policies.values() for name in named_namespaces(policy)}
    needed |= {namespace} if namespace is not None else set()
    with open_view_if_any(view, needed) as opened:
        for line in hints(list(policies.values())[::-1], by_kind(objects), opened, namespace):
            click.echo(f"podsettle: {printable(line)}", err=True)
    if output == "json":
        click.echo(json.dumps([_as_json(problem) for problem in problems], indent=2))
    else:
        for problem in problems:
            click.echo(printable(str(problem)))
        click.echo(_summary(len(policies), len(problems)), err=True)
    if problems:
        context.exit(1)


def _read_manifests(
    paths: tuple[Path, ...],
) -> Iterator[tuple[list[ManifestObject], tuple[ManifestProblem, ...]]]:
    """Yield the objects and the problems of each file. Raise InputError for an invalid path."""
    for path in paths:
        if str(path) == "-":
            yield parse_manifest(sys.stdin.buffer.read(), "stdin")
            continue
        if not path.exists():
            raise InputError(f"{path}: no such file or directory")
        try:
            files = manifest_files(path) if path.is_dir() else [path]
        except ManifestsError as error:
            raise InputError(str(error)) from None
        for file in files:
            yield read_manifest(file)


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
        return f"podsettle: {valid}"
    return f"podsettle: {problems} problem{'s' if problems > 1 else ''}; {valid}"
