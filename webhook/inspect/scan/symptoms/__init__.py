"""The symptoms that a scan looks for in pods, in the order of reports.

To add one:

1. Write a module here that ends with its `SYMPTOM`. Its `find` gets a Case (`base.py`): a pod and
   the facts of its cluster. It compares times of the cluster with one another and never with the
   present, and yields a finding for each time that the pod has the symptom. The symptom of a defect
   has its id: `symptom_of(id, ...)`. A fault of configuration is a `Symptom` with an id, a title
   and a page of its own. `signs` and `against` are the events that a scan keeps. `find` gets all
   events of a pod if it is not certain. `areas` are the kinds without which the absence of the
   symptom means nothing.
2. Add it to `SYMPTOMS` below.
3. Add a pod that has the symptom to PLANTS in tests/support/planted_symptoms.py, and to the
   look-alikes a pod that differs in one field and does not have it. The tests need two of each.
4. Say in docs/scan.md what proves it, and how certain that is.
"""

from __future__ import annotations

from webhook.inspect.findings import Finding
from webhook.inspect.objects import LivePod
from webhook.inspect.scan.symptoms import (
    exit_255,
    fs_group,
    kubelet_certificate,
    missing_handler,
    selinux_relabel,
    slow_umount,
)
from webhook.inspect.scan.symptoms.base import Case, ScanFacts, Symptom

SYMPTOMS: tuple[Symptom, ...] = (
    exit_255.SYMPTOM,
    slow_umount.SYMPTOM,
    selinux_relabel.SYMPTOM,
    kubelet_certificate.SYMPTOM,
    missing_handler.SYMPTOM,
    fs_group.SYMPTOM,
)


def judge_pod(pod: LivePod, facts: ScanFacts) -> list[Finding]:
    """Return what all symptoms find at a pod, in their order."""
    return [found for each in SYMPTOMS for found in each.find(Case(pod, facts, each))]
