"""Native policies as YAML for people: the documents, and the comment in front of them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from typing import Any

import yaml

from webhook import __version__
from webhook.core.export.native_policies import API_VERSIONS, Export, NativePolicy
from webhook.core.kubectl_yaml import KubectlDumper

VALIDATING_NEEDS = "They need Kubernetes 1.30 or later."
"""What ValidatingAdmissionPolicies need: they are of the API v1 since that release."""
_WIDTH = 98


def _today() -> date:
    return datetime.now(UTC).date()


def written_line(title: str, command: str) -> str:
    """Return when and from what a command wrote the policies."""
    return f"Written by podsettle {__version__} on {_today()} from {title}: {command}"


def server_needs(api_version: str) -> str:
    """Return what the API server needs for MutatingAdmissionPolicies of a version."""
    minimum = API_VERSIONS[api_version]
    if api_version == "v1":
        return f"They need Kubernetes {minimum.major}.{minimum.minor} or later."
    return (
        "They need an API server with --feature-gates=MutatingAdmissionPolicy=true and "
        f"--runtime-config=admissionregistration.k8s.io/{api_version}=true."
    )


def left_out_lines(found: Export) -> Iterator[str]:
    """Yield a list of what no native policy can do."""
    if found.not_native:
        yield "Left out, because no native policy can do it:"
        yield from (f"- {each.policy}: {each.part}: {each.why}" for each in found.not_native)


def node_decision_lines(found: Export) -> Iterator[str]:
    """Yield a list of what the nodes decided."""
    if found.by_nodes:
        yield f"Decided by the nodes of {_today()}, for all pods alike:"
        for decision in found.by_nodes:
            verb = "acts" if decision.is_needed else "is left out"
            yield f"- {decision.policy}: {decision.remedy} {verb}: {decision.why}"


def as_comment(paragraphs: Iterable[str]) -> str:
    """Return paragraphs and items of lists as a comment in YAML."""
    lines = []
    for paragraph in paragraphs:
        indent = "  " if paragraph.startswith("- ") else ""
        # Commands and paths stay whole, so that they can be copied.
        lines += textwrap.wrap(
            paragraph,
            _WIDTH,
            subsequent_indent=indent,
            break_on_hyphens=False,
            break_long_words=False,
        )
    return "".join(f"# {line}\n" for line in lines)


class _Dumper(KubectlDumper):
    """A dumper that writes texts of several lines as blocks, which people can read."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _represent_text)


def policy_yaml(policy: NativePolicy, about: Iterable[str]) -> str:
    """Return the documents of a policy, after paragraphs about it as a comment."""
    documents: list[Any] = list(policy.documents)
    text = yaml.dump_all(documents, Dumper=_Dumper, sort_keys=False, width=1000)
    return f"---\n{as_comment(about)}{text}"
