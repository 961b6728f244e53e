"""The policies that a scan proposes, as native policies, which need no webhook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import yaml

from webhook.core.export.native_policies import Export, export
from webhook.core.policy.model import parse_policy
from webhook.core.policy.plan import compile_policy
from webhook.inspect.known_cluster import KnownCluster
from webhook.inspect.scan.model import ScanReport, SymptomReport
from webhook.inspect.scan.summary import found_symptoms


class NativeProposals(NamedTuple):
    """The proposed policies of a scan as native policies."""

    export: Export
    symptoms: Mapping[str, SymptomReport]
    """The symptoms for which a policy is proposed, by the policy's name."""
    without_policy: tuple[SymptomReport, ...]
    """The symptoms whose remedy would change no pod."""


def export_proposals(
    report: ScanReport,
    cluster: KnownCluster,
    *,
    action: Literal["Audit", "Mutate"],
    api_version: str,
) -> NativeProposals:
    """Return the proposed policies with an action as native policies.

    The policies in force in the cluster come first for a pod, as they do in the preview.
    """
    symptoms, policies, without_policy = {}, [], []
    for symptom in found_symptoms(report):
        if not symptom.policy and symptom.preview is not None:
            without_policy.append(symptom)
        elif symptom.policy:
            document = yaml.safe_load(symptom.policy)
            policy = parse_policy({**document, "spec": {**document["spec"], "action": action}})
            symptoms[policy.metadata.name] = symptom
            policies.append((policy, compile_policy(policy)))
    exported = export(
        cluster.view.policies.replaced(policies),
        cluster.view,
        cluster.settings,
        api_version=api_version,
        names=symptoms,
    )
    return NativeProposals(exported, symptoms, tuple(without_policy))
