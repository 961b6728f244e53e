"""The symptoms of defects that one pod shows, with the policies that a scan would propose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from webhook.inspect.explain.model import PodSymptom
from webhook.inspect.findings import Certainty
from webhook.inspect.known_cluster import KnownCluster
from webhook.inspect.objects import Event, LivePod
from webhook.inspect.scan.advice import advice_for
from webhook.inspect.scan.found_pods import FoundPods
from webhook.inspect.scan.nodes import page_of
from webhook.inspect.scan.proposals import propose
from webhook.inspect.scan.symptoms import SYMPTOMS
from webhook.inspect.scan.symptoms.base import ScanFacts


def symptoms_of(
    pod: LivePod, cluster: KnownCluster, events: Sequence[Event] = ()
) -> Iterator[PodSymptom]:
    """Yield the symptoms that a pod, its node and its events show.

    A scan also reads certificate requests.
    """
    view = cluster.view
    facts = ScanFacts(
        {node.name: node for node in view.nodes.all},
        view.runtime_classes,
        events={pod.key: [each for each in events if each.involved_object.pod_key == pod.key]},
    )
    for symptom in SYMPTOMS:
        findings = list(symptom.judge(pod, facts))
        if not findings or symptom.defect is None:
            continue
        found = FoundPods(view, view.policies)
        found.add(pod, findings)
        proposal = propose(symptom.defect, found, cluster, {})
        yield PodSymptom(
            symptom=symptom.id,
            certainty=min((each.certainty for each in findings), key=list(Certainty).index),
            sentences=[finding.sentence for finding in findings],
            advice=advice_for(symptom.defect, proposal.preview if proposal else None),
            policy=proposal.policy if proposal else "",
            page=page_of(symptom.defect),
        )
