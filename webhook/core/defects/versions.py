"""Versions of Kubernetes and of container runtimes, and the features that they have.

The catalogue (`webhook.core.defects.catalogue`) has the versions with defects.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# At most nine digits per number, because Python rejects numbers of more than 4,300 digits.
_VERSION = re.compile(
    r"v?(\d{1,9})\.(\d{1,9})(?!\d)(?:\.(\d{1,9})(?!\d))?(-(?:alpha|beta|rc|dev)(?![a-z]))?",
    re.ASCII,
)


class Version(NamedTuple):
    """A release. `final` is False for a pre-release, which sorts before the final release.

    A vendor's rebuild (`1.33.5-2.rhaos4.20`) counts as the release in its name.
    """

    major: int
    minor: int
    patch: int = 0
    final: bool = True

    def __str__(self) -> str:
        release = f"{self.major}.{self.minor}.{self.patch}"
        return release if self.final else f"{release} pre-release"


def parse_version(text: str) -> Version | None:
    """Return the version at the start of a text such as `v1.36.2` or `1.33.12-5.el9`, or None."""
    match = _VERSION.match(text)
    if not match:
        return None
    major, minor, patch, pre_release = match.groups()
    return Version(int(major), int(minor), int(patch or 0), not pre_release)


class Runtime(NamedTuple):
    """A node's container runtime, from `status.nodeInfo.containerRuntimeVersion`."""

    name: str
    version: Version | None

    def __str__(self) -> str:
        return f"{self.name} {self.version or '?'}"


def parse_runtime(text: str) -> Runtime:
    """Return the runtime in a text such as `cri-o://1.33.12`. A malformed version becomes None."""
    name, _, version = text.partition("://")
    return Runtime(name, parse_version(version))


# KEP-4639: from Kubernetes 1.36 on, no feature gate can switch image volumes off.
IMAGE_VOLUMES_LOCKED_ON = Version(1, 36)
# KEP-4639: in Kubernetes 1.35 image volumes are on by default. An API server without the feature
# admits the pod without the volume and its mounts, so a wrapped command would not be found.
IMAGE_VOLUMES_ON_BY_DEFAULT = Version(1, 35)

# KEP-5307: `restartPolicyRules` of a container, on by default from 1.35, and still beta in 1.37. An
# API server before 1.34 rejects an init container with a `restartPolicy` other than Always.
RESTART_RULES_ON_BY_DEFAULT = Version(1, 35)

# KEP-1710: `seLinuxChangePolicy` of a pod, beta and on by default from 1.33. An older API server
# drops the field.
SELINUX_CHANGE_POLICY_ON_BY_DEFAULT = Version(1, 33)

# The runtimes that take an image whose name has no registry from Docker Hub: containerd
# (`ParseDockerRef`) and Docker. CRI-O goes by the aliases and the search list in the node's
# registries.conf (containers/image `pkg/shortnames`).
DOCKER_HUB_RUNTIMES = frozenset({"containerd", "docker"})

# The first runtime releases that mount image volumes: cri-o PR 8317, containerd PR 10579.
_IMAGE_VOLUMES_SINCE = {"cri-o": Version(1, 31), "containerd": Version(2, 1)}


def supports_restart_rules(kubelet: Version | None) -> bool:
    """Return whether a kubelet follows `restartPolicyRules`. An older one ignores them."""
    return kubelet is not None and kubelet >= RESTART_RULES_ON_BY_DEFAULT


def mounts_image_volumes(
    kubelet: Version | None, runtime: Runtime, minimum_kubelet: Version
) -> bool:
    """Return whether a node with this kubelet and runtime mounts `volumes[].image`.

    A kubelet older than `minimum_kubelet` counts as one that does not mount them. The result is
    certain for IMAGE_VOLUMES_LOCKED_ON. For an older minimum, a feature gate of the node may still
    switch image volumes off.
    """
    since = _IMAGE_VOLUMES_SINCE.get(runtime.name)
    return (
        kubelet is not None
        and kubelet >= minimum_kubelet
        and since is not None
        and runtime.version is not None
        and runtime.version >= since
    )
