"""The names that podsettle reads and writes in objects. They are a contract with users."""

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
"""On every namespace: its name. The API server sets this label."""

ANNOTATION_SKIP = f"{GROUP}/skip"
"""On a pod: `"true"` to skip all remedies, or a comma-separated list of remedies to skip."""
ANNOTATION_START_GATE = f"{GROUP}/start-gate"
"""On a pod: a comma-separated list of targets that the remedy startGate waits for in addition to
those of its policy, if the policy allows it."""
ANNOTATION_APPLIED = f"{GROUP}/applied"
"""On a settled pod: a comma-separated list of `policy/remedy`."""
ANNOTATION_SETTLED = f"{GROUP}/settled"
"""On a settled pod: its fingerprint (`PodPatch.settled_fingerprint`). While it matches, the match
condition `not-settled` keeps the API server from calling a cluster webhook for the pod."""
ANNOTATION_SUMMARY = f"{GROUP}/summary"
"""On a pod that a policy concerns: a sentence for people on what was done and what was left out."""
ANNOTATION_SKIPPED = f"{GROUP}/skipped"
"""On such a pod: a comma-separated list of `container/remedy=Reason`, or `remedy=Reason` for the
whole pod, for remedies that a policy wanted and the pod could not get."""
MAX_NOTE_BYTES = {
    key: size - len(key) for key, size in ((ANNOTATION_SUMMARY, 1280), (ANNOTATION_SKIPPED, 768))
}
"""The maximum size of the value of each annotation for people, in UTF-8. Every pod of a cluster may
carry both. With their keys they take at most 2 KiB in etcd."""
ANNOTATION_EXPORTED_FROM = f"{GROUP}/exported-from"
"""On a policy that `podsettle export` wrote: the name of its SettlePolicy."""
ANNOTATION_EXPORTED_BY = f"{GROUP}/exported-by"
"""On such a policy: the version of podsettle that wrote it."""
ANNOTATION_MIRROR = "kubernetes.io/config.mirror"
"""On a mirror pod, which the kubelet creates to represent a static pod."""

ANNOTATION_NAMESPACE_LEVEL = "openshift.io/sa.scc.mcs"
"""On each namespace of OpenShift: a range of SELinux levels. Its pods get the first level of it."""
ANNOTATION_NODE_SELECTOR = "openshift.io/node-selector"
"""On a namespace of OpenShift: labels that are added to the nodeSelector of its pods."""

SKIP_RELABEL_ANNOTATIONS = (
    "io.kubernetes.cri-o.TrySkipVolumeSELinuxLabel",
    "try-skip-volume-selinux-label.crio.io",
)
"""The two names of one annotation for CRI-O. The first exists since CRI-O 1.21.4, the second since
1.35.0 (cri-o PR 9537). podsettle writes both, because a release ignores the name that it does not
know."""

ANNOTATION_MIN_MEMORY = f"{GROUP}/min-memory"
"""On a RuntimeClass: the smallest memory limit that the nodes' handler accepts, such as `500Ki`."""
ANNOTATION_ALLOWED_ANNOTATIONS = f"{GROUP}/allowed-annotations"
"""On a RuntimeClass: a comma-separated list of annotations for CRI-O that the nodes' handler
allows, beside SKIP_RELABEL_ANNOTATIONS. An empty list allows no other."""

OWN_ANNOTATIONS = frozenset(
    {ANNOTATION_APPLIED, ANNOTATION_SETTLED, *MAX_NOTE_BYTES, *SKIP_RELABEL_ANNOTATIONS}
)
"""The annotations that podsettle sets on pods."""

SYSTEM_NAMESPACE_PREFIXES = ("kube-", "openshift-")
"""The prefixes of namespaces that belong to the cluster itself. podsettle changes no pods in them,
unless a policy's selector names the namespace."""

HELPER = "podsettle-linger"
"""The name of the init container that copies the helper into a pod, and of the volume that holds
the helper."""
KUBELET_GATE = "podsettle-kubelet-gate"
"""The name of the init container that waits for the node's kubelet."""
START_GATE = "podsettle-start-gate"
"""The name of the init container that waits for what a pod needs. A container that waits for the
kubelet too has the name KUBELET_GATE, because earlier versions of podsettle know only that name."""
GATES = frozenset({KUBELET_GATE, START_GATE})
"""The names of the init containers that hold a pod until something answers."""
OWN_CONTAINERS = frozenset({HELPER, *GATES})
"""The names of the init containers that podsettle inserts into pods."""
HELPER_MOUNT = "/podsettle"
"""The path at which containers mount the volume with the helper."""
HELPER_PATH = f"{HELPER_MOUNT}/linger"
"""The path of the helper's executable in a container that mounts the volume."""
HELPER_IN_IMAGE = "/linger"
"""The path of the helper's executable in the helper's own image."""
WAIT = "wait"
"""The command of the helper that waits for targets. It is the last item of a gate's `command`, and
distinguishes a kubelet gate that waits for targets too."""
SCRIPT_MARKER = ": podsettle;"
"""The first characters of the wrapper's script in every version of podsettle. `:` does nothing in a
shell. During an upgrade replicas of two versions change pods, and each must recognise the other's
wrapper."""
SCRIPT_NAME = "podsettle"
"""The value of `$0` in the wrapper's script, in every version of podsettle."""

DNS_LABEL = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
"""The pattern of a DNS label (RFC 1123), such as the name of a namespace or of a container."""
DNS_LABEL_NAME = re.compile(DNS_LABEL, re.ASCII)
"""The same, for `fullmatch`."""
DNS_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
"""The pattern of a DNS subdomain, as the API server has it: without the lengths."""
OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
"""The pattern of an object's name, for `fullmatch`. It allows no slash, so a name that is inserted
into a URL stays one segment of its path, and it is safe in a command line."""
