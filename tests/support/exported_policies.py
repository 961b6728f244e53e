"""Native policies as the API server has them."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy

from tests.support.e2e_pods import Json
from webhook.core.admission.decider import OperatorSettings
from webhook.core.export.native_policies import export
from webhook.core.policy.snapshot import Snapshot
from webhook.inspect.exported_policies import ExportedPolicies, PolicyApi, join

CREATED = "2026-01-02T00:00:00Z"


def written(seen: Snapshot, *, guard: bool = False) -> list[Json]:
    """Return the documents of all policies of a view."""
    found = export(seen.policies, seen, OperatorSettings(), guard=guard)
    return [document for policy in found.policies for document in policy.documents]


def as_read(documents: Iterable[Json], api: PolicyApi, version: str = "v1") -> ExportedPolicies:
    """Return the native policies of an API among documents, without the kinds, as in a list."""
    lists: dict[str, list[Json]] = {api.kind: [], f"{api.kind}Binding": []}
    for document in deepcopy(list(documents)):
        document["metadata"]["creationTimestamp"] = CREATED
        kind = document.pop("kind")
        if kind in lists:
            lists[kind].append(document)
    return join(api, version, *lists.values())
