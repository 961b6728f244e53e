"""The commands that several pieces of advice share."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from typing import Any

from webhook.inspect.installation import Installation

CHART = "charts/podsettle"
"""The path of the chart in a checkout of the installed version."""


def helm_upgrade(installation: Installation, *values: str) -> str:
    """Return the command that writes all objects of the release again.

    `values` are flags that change values. Without a Helm release, the name of the Deployment stands
    for the release.
    """
    release = installation.helm_release or installation.name
    return " ".join(
        (
            f"helm upgrade {release} {CHART} -n {installation.namespace}",
            "--reset-then-reuse-values --server-side=true --force-conflicts",
            *values,
        )
    )


def json_patch(
    what: str, operations: Iterable[dict[str, Any]], namespace: str | None = None
) -> str:
    """Return the command that applies a JSON patch to an object, such as `lease podsettle`."""
    scope = f"-n {namespace} " if namespace else ""
    return f"kubectl {scope}patch {_words(what)} --type=json -p {_quoted(list(operations))}"


def merge_patch(what: str, body: dict[str, Any], namespace: str | None = None) -> str:
    """Return the command that applies a merge patch to an object."""
    scope = f"-n {namespace} " if namespace else ""
    return f"kubectl {scope}patch {_words(what)} --type=merge -p {_quoted(body)}"


def only_report(policy: str) -> str:
    """Return the command with which a policy reports and changes nothing."""
    return merge_patch(f"settlepolicy {policy}", {"spec": {"action": "Audit"}})


def _words(what: str) -> str:
    """Return a kind and a name, quoted. Some names are arguments of a Deployment: any text."""
    kind, _, name = what.partition(" ")
    return f"{kind} {shlex.quote(name)}"


def _quoted(body: object) -> str:
    return shlex.quote(json.dumps(body, separators=(",", ":")))
