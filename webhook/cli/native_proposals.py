"""The output of `podsettle scan -o policy --native`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from webhook.cli.echo import echo_message, echo_text
from webhook.cli.native_policy_yaml import (
    VALIDATING_NEEDS,
    as_comment,
    left_out_lines,
    node_decision_lines,
    policy_yaml,
    server_needs,
    written_line,
)
from webhook.cli.open_cluster import OpenCluster
from webhook.cli.options import InputError
from webhook.inspect.cluster_flags import kubectl

if TYPE_CHECKING:
    from webhook.inspect.known_cluster import KnownCluster
    from webhook.inspect.scan.model import ScanReport, SymptomReport
    from webhook.inspect.scan.native_proposals import NativeProposals

_LACKS_MUTATING = (
    "the API server has no MutatingAdmissionPolicies: Kubernetes 1.36 and later have them, and "
    "1.34 and 1.35 with flags (docs/export.md). podsettle's webhook does without them: without "
    "--native, the policies are for it"
)


def mutating_version(opened: OpenCluster, *, mutate: bool) -> str:
    """Return the version of MutatingAdmissionPolicies of the API server. Empty if it has none.

    Raises InputError if it lacks the kind that is to be printed. Manifests do not say what their
    API server has.
    """
    if opened.connection is None:
        return "v1"
    from webhook.inspect.native_policies_api import served_versions

    server, run = opened.connection.server, opened.connection.run
    versions = run(served_versions(server, "MutatingAdmissionPolicy"))
    if mutate and not versions:
        raise InputError(f"scan: {_LACKS_MUTATING}; without --mutate, native policies only report")
    if not mutate and "v1" not in run(served_versions(server, "ValidatingAdmissionPolicy")):
        raise InputError(
            "scan: the API server has no ValidatingAdmissionPolicies: Kubernetes 1.30 and later "
            "have them; without --native, the policies are for podsettle's webhook"
        )
    return versions[0] if versions else ""


def print_native(report: ScanReport, known: KnownCluster, version: str, *, mutate: bool) -> None:
    """Print the proposals of a scan as native policies.

    `version` is that of MutatingAdmissionPolicies in the API server, or empty.
    """
    from webhook.inspect.scan.native_proposals import export_proposals

    proposals = export_proposals(
        report, known, action="Mutate" if mutate else "Audit", api_version=version or "v1"
    )
    found = proposals.export
    # A pipe into kubectl hides the comment.
    for each in found.not_native:
        echo_message(f"scan: left out: {each.policy}: {each.part}: {each.why}")
    if not found.policies:
        echo_message("scan: no policy is printed, because no proposed one can be native")
    documents = (
        policy_yaml(each, _about(proposals.symptoms[each.source.metadata.name]))
        for each in found.policies
    )
    echo_text(as_comment(_comments(report, known, proposals, version, mutate)), *documents)


def _comments(
    report: ScanReport,
    known: KnownCluster,
    proposals: NativeProposals,
    version: str,
    mutate: bool,
) -> Iterator[str]:
    """Yield what the output does not say itself, a paragraph or an item of a list at a time."""
    found = proposals.export
    command = f"{report.command} -o policy --native"
    yield written_line(known.title, f"{command} --mutate" if mutate else command)
    if found.policies:
        yield from _about_policies(command, known, version, mutate)
    yield from left_out_lines(found)
    if found.not_native:
        yield f"podsettle's webhook can do it. The policies for it: {report.command} -o policy"
    if proposals.without_policy:
        yield "Found, but no policy is proposed:"
        yield from (f"- {each.id}: {each.advice}" for each in proposals.without_policy)
    yield from node_decision_lines(found)


def _about_policies(command: str, known: KnownCluster, version: str, mutate: bool) -> Iterator[str]:
    """Yield what the printed policies do and need, and how they are removed."""
    if mutate:
        yield f"The API server evaluates these policies itself. {server_needs(version)}"
    else:
        yield (
            "The API server evaluates these policies itself. They change no pod: they report pods "
            "that would be changed, by warnings of kubectl and in the audit log. "
            f"{VALIDATING_NEEDS}"
        )
        if version:
            apply = known.flags.command(kubectl("apply", "-f", "-"))
            yield f"To change new pods: {command} --mutate | {apply}"
        else:
            yield f"--mutate is not possible here: {_LACKS_MUTATING}"
    yield (
        "A later scan finds other pods, and proposes other policies. Keep this output in a file, "
        f"to remove what it created: {known.flags.command(kubectl('delete', '-f', 'FILE'))}"
    )


def _about(symptom: SymptomReport) -> Iterator[str]:
    """Yield the symptom that a policy cures, and the comment of the proposed policy."""
    yield f"{symptom.id}: {symptom.title}"
    comment = itertools.takewhile(lambda line: line[0] == "#", symptom.policy.splitlines())
    yield " ".join(line.removeprefix("# ") for line in comment)
