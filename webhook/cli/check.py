"""The command `podsettle check`, which reports errors in policies and other manifests."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from webhook.cli.hints import policy_hints, unknown_class_hints
from webhook.cli.node_needs import node_need_lines
from webhook.cli.options import InputError, paths_argument
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
from webhook.core.policy.model import SettlePolicy


@click.command()
@paths_argument
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="text: one line for each problem, as FILE:LINE: PATH: PROBLEM. json: a list of problems.",
)
@click.pass_context
def check(context: click.Context, paths: tuple[Path, ...], output: str) -> None:
    """Check policies and other manifests for errors.

    Each PATH is a file, a directory, or - for standard input. The output names the file, the line
    and the path of each problem. If the manifests contain Nodes, it also says which policies these
    nodes still need. That does not change the exit code.

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
    for line in (*_hints(objects, policies), *_node_needs(objects, policies)):
        click.echo(f"podsettle: {line}", err=True)
    if output == "json":
        click.echo(json.dumps([_as_json(problem) for problem in problems], indent=2))
    else:
        for problem in problems:
            click.echo(str(problem))
        click.echo(_summary(len(policies), len(problems)), err=True)
    if problems:
        context.exit(1)


def _hints(
    objects: Iterable[ManifestObject], policies: Mapping[str, SettlePolicy]
) -> Iterator[str]:
    """Yield hints about valid policies that may not have the effect that their author wants."""
    in_file_order = list(policies.values())[::-1]
    for policy in in_file_order:
        yield from policy_hints(policy)
    yield from unknown_class_hints(
        in_file_order, {item.name for item in objects if item.kind == "RuntimeClass"}
    )


def _node_needs(
    objects: Iterable[ManifestObject], policies: Mapping[str, SettlePolicy]
) -> Iterator[str]:
    """Yield lines that say which of the policies the nodes among the manifests need."""
    by_kind: dict[str, dict[str, Any]] = {}
    for item in reversed(list(objects)):  # The first object of a name counts.
        by_kind.setdefault(item.kind, {})[item.name] = item.model
    yield from node_need_lines(
        list(policies.values())[::-1],
        list(by_kind.get("Node", {}).values())[::-1],
        by_kind.get("RuntimeClass", {}),
    )


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
