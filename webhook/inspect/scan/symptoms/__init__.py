"""The symptoms that a scan looks for in pods, in the order of reports."""

from __future__ import annotations

from webhook.inspect.scan.symptoms import (
    exit_255,
    fs_group,
    kubelet_certificate,
    missing_handler,
    selinux_relabel,
    slow_umount,
)
from webhook.inspect.scan.symptoms.base import Symptom

SYMPTOMS: tuple[Symptom, ...] = (
    exit_255.SYMPTOM,
    slow_umount.SYMPTOM,
    selinux_relabel.SYMPTOM,
    kubelet_certificate.SYMPTOM,
    missing_handler.SYMPTOM,
    fs_group.SYMPTOM,
)
