"""The names that podsettle reads and writes on objects. They are a contract with users."""

from __future__ import annotations

import re

GROUP = "podsettle.dev"
API_VERSION = f"{GROUP}/v1alpha1"
KIND = "SettlePolicy"

LABEL_POLICY = f"{GROUP}/policy"
"""On a namespace: the name of a policy that covers it."""
LABEL_ENABLED = f"{GROUP}/enabled"
"""On a namespace: `"false"` switches podsettle off there."""
LABEL_NAMESPACE_NAME = "kubernetes.io/metadata.name"

ANNOTATION_SKIP = f"{GROUP}/skip"
"""On a pod: `"true"` to skip all remedies, or a comma-separated list of remedies to skip."""
ANNOTATION_APPLIED = f"{GROUP}/applied"
"""On a settled pod: a comma-separated list of `policy/remedy`."""
ANNOTATION_SETTLED = f"{GROUP}/settled"
"""On a settled pod: its fingerprint (`PodPatch.settled_fingerprint`). While it matches, the match
condition `not-settled` keeps the API server from calling podsettle again for the pod."""
ANNOTATION_MIRROR = "kubernetes.io/config.mirror"

SKIP_RELABEL_ANNOTATIONS = (
    "io.kubernetes.cri-o.TrySkipVolumeSELinuxLabel",
    "try-skip-volume-selinux-label.crio.io",
)
"""CRI-O's two spellings: the first since 1.21.4, the second since 1.35.0 (cri-o PR 9537). podsettle
writes both, because a release ignores the spelling that it does not know."""

OWN_ANNOTATIONS = frozenset({ANNOTATION_APPLIED, ANNOTATION_SETTLED, *SKIP_RELABEL_ANNOTATIONS})

SYSTEM_NAMESPACE_PREFIXES = ("kube-", "openshift-")
"""The prefixes of namespaces that belong to the cluster itself. podsettle changes no pods in them,
unless a policy's selector names the namespace."""

HELPER = "podsettle-linger"
"""The name of the helper's init container and of its volume."""
KUBELET_GATE = "podsettle-kubelet-gate"
"""The name of the init container that waits for the node's kubelet."""
OWN_CONTAINERS = frozenset({HELPER, KUBELET_GATE})
HELPER_MOUNT = "/podsettle"
HELPER_PATH = f"{HELPER_MOUNT}/linger"
HELPER_IN_IMAGE = "/linger"

OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
"""The name of an object, for `fullmatch`. It allows no slash, so a name stays one path segment."""
