"""Words that the inputs of each target are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.fuzz.targets import TARGETS
from webhook.core.constants import OWN_ANNOTATIONS
from webhook.core.remedies import REMEDIES

WORDS: Mapping[str, Sequence[str]] = {
    "reviews": (
        *TARGETS["admit"].words,
        *(f'"{name}":"' for name in sorted(OWN_ANNOTATIONS)),
        '"request":{', '"object":{', '"spec":{', '"initContainers":[', '"containers":[',
        '"volumes":[', '"restartPolicyRules":[', '"securityContext":{', '"runtimeClassName":"',
        '"podsettle-linger"', '"/podsettle/linger"', '"persistentVolumeClaim":{',
    ),
    "policies": (
        *TARGETS["documents"].words,
        *REMEDIES,
        "apiVersion: podsettle.dev/v1alpha1\n", "kind: SettlePolicy\n", "metadata: ", "spec: ",
        "remedies: ", "podSelector: ", "matchLabels: ", "matchExpressions: ", "operator: In",
        "namespaceSelector: ", "imageConfig: ", "lookup: Registry", "action: Audit", "priority: ",
        "1s", "500ms", "All", "NodesNeedIt",
    ),
    "workloads": (*TARGETS["preview"].words, "kind: Job\n", "kind: CronJob\n", "template: "),
    "kubeconfigs": (
        *TARGETS["documents"].words,
        "clusters:", "contexts:", "users:", "current-context: ", "name: a", "cluster: ", "user: ",
        "server: https://a", "certificate-authority-data: ", "token: ", "namespace: ",
        "insecure-skip-tls-verify: true", "proxy-url: ", "tls-server-name: ", "client-key-data: ",
    ),
    "references": TARGETS["references"].words,
    "linger-durations": ("ns", "us", "\u00b5s", "\u03bcs", "ms", "s", "m", "h", ".", "9223372036"),
    "linger-arguments": (
        "--sleep", "--min-lifetime", "--", "--timeout", "--port", "install", "wait-kubelet",
        "wait", "--tcp", "--http", "--dns", "--kubelet", "http://", "[::1]:80",
        "--version", "--help", "=", "1s", "10250", "::1", "127.0.0.1", "\0",
    ),
}  # fmt: skip
