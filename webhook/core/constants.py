"""The names that podsettle reads and writes on objects. They are part of the contract."""

from __future__ import annotations

import re

GROUP = "podsettle.dev"
API_VERSION = f"{GROUP}/v1alpha1"
KIND = "SettlePolicy"

LABEL_POLICY = f"{GROUP}/policy"
"""On a namespace: the name of one policy that covers it."""
LABEL_ENABLED = f"{GROUP}/enabled"
"""On a namespace: `"false"` switches podsettle off there."""
LABEL_NAMESPACE_NAME = "kubernetes.io/metadata.name"

ANNOTATION_SKIP = f"{GROUP}/skip"
"""On a pod: `"true"`, or remedies with commas between them, to be left out."""
ANNOTATION_APPLIED = f"{GROUP}/applied"
"""On a settled pod: `policy/remedy` pairs with commas between them."""
ANNOTATION_SETTLED = f"{GROUP}/settled"
"""On a settled pod: its size as podsettle left it. While it is still of that size, the API server
does not ask again in namespaces that a policy selects (`scope`, the condition not-settled)."""
ANNOTATION_MIRROR = "kubernetes.io/config.mirror"

SKIP_RELABEL_ANNOTATIONS = (
    "io.kubernetes.cri-o.TrySkipVolumeSELinuxLabel",
    "try-skip-volume-selinux-label.crio.io",
)
"""CRI-O's two spellings: the first since 1.21.4, the second since 1.35.0 (cri-o PR 9537). Each
release ignores the one that it does not know, so both are written."""

OWN_ANNOTATIONS = frozenset({ANNOTATION_APPLIED, ANNOTATION_SETTLED, *SKIP_RELABEL_ANNOTATIONS})

SYSTEM_NAMESPACES = ("kube-", "openshift-")
"""How the names of namespaces begin that belong to the cluster itself. They are left alone unless a
policy's selector names one."""

HELPER = "podsettle-linger"
"""Init container and volume of the helper."""
KUBELET_GATE = "podsettle-kubelet-gate"
"""Init container that waits for the node's kubelet."""
OWN_CONTAINERS = frozenset({HELPER, KUBELET_GATE})
HELPER_MOUNT = "/podsettle"
HELPER_PATH = f"{HELPER_MOUNT}/linger"
HELPER_IN_IMAGE = "/linger"

OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
"""What an object may be called, to be matched whole: it is one part of a path, never more."""
