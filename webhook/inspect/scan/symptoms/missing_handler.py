"""Pods whose node has no handler for their RuntimeClass. This is a fault of configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator

from webhook.core.defects.defect import Sign
from webhook.inspect.findings import Certainty, Evidence, Finding
from webhook.inspect.scan.symptoms.base import Case, Symptom, event_evidence

_REASON = "FailedCreatePodSandBox"
_SIGNS = (
    Sign(reason=_REASON, contains=("no runtime for",), certainty="certain"),  # containerd
    Sign(reason=_REASON, contains=("failed to find runtime handler",), certainty="certain"),
)
_STARTED_PHASES = ("Running", "Succeeded")
_HANDLER = re.compile(
    r'no runtime for "([^"]+)" is configured|failed to find runtime handler "?([^\s"]+)"?'
)


def find(case: Case) -> Iterator[Finding]:
    """Yield a finding if an event or the node says that the handler is missing.

    An event says what was, for an hour. So it counts only while the pod does not run, and if the
    node does not list the handler.
    """
    pod, facts = case.pod, case.facts
    class_name = pod.spec.runtime_class_name
    if not class_name or not pod.spec.node_name or pod.status.phase in _STARTED_PHASES:
        return
    runtime_class = facts.runtime_classes.get(class_name)
    handler = runtime_class.handler if runtime_class is not None else ""
    node, name = facts.nodes.get(pod.spec.node_name), f"node {pod.spec.node_name}"
    listed = node.handlers if node is not None else None
    of_class = [Evidence(f"runtimeclass {class_name}", "handler", handler)] if handler else []
    for sign in _SIGNS:
        event = case.event(sign)
        found = _HANDLER.search(event.message) if event is not None else None
        if event is None or found is None:
            continue
        named = found[1] or found[2]
        if (handler and named != handler) or named in (listed or ()):
            continue
        certainty = Certainty.CERTAIN if handler else Certainty.LIKELY
        sentence = (
            f"{name} had no runtime handler {named} at the time of the event, so the pod could not "
            "start"
        )
        evidence, seen = [event_evidence(event), *of_class], event.time
        break
    else:
        if not handler or listed is None or handler in listed or pod.status.phase != "Pending":
            return
        certainty, named, seen = Certainty.LIKELY, handler, None
        evidence = [
            *of_class,
            Evidence(name, "status.runtimeHandlers", ", ".join(sorted(filter(None, listed)))),
            case.evidence("status.phase", "Pending"),
        ]
        sentence = f"{name} has no runtime handler {handler}, so the pod cannot start"
    advice = (
        f"Configure the handler {named} on {name}, or restrict RuntimeClass {class_name} by "
        "scheduling.nodeSelector to nodes that have it."
    )
    yield case.finding(certainty, sentence, evidence, seen, advice=advice)


SYMPTOM = Symptom(
    id="missing-handler",
    title="The node of a pod has no handler for the pod's RuntimeClass",
    areas=("pods", "nodes", "runtimeclasses", "events"),
    find=find,
    signs=_SIGNS,
    page="docs/node-config.md",
)
