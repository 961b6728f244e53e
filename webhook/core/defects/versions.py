"""Versions of Kubernetes and of container runtimes: their defects, fixes and features."""

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
        return f"{self.major}.{self.minor}.{self.patch}"


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
        return f"{self.name} {'.'.join(map(str, self.version[:3])) if self.version else '?'}"


def parse_runtime(text: str) -> Runtime:
    """Return the runtime in a text such as `cri-o://1.33.12`. A malformed version becomes None."""
    name, _, version = text.partition("://")
    return Runtime(name, parse_version(version))


# cri-o issue 9840: CRI-O does not wait for the exit file before it defaults to exit code 255.
# PR 9846 fixed it on the main branch, first released in 1.36.0. Releases up to 1.32 have no fix.
# The table maps a minor release of 1.x to its first fixed patch release.
_EXIT_255_FIXED_IN = {
    33: 13,  # PR 9932
    34: 9,  # PR 9879
    35: 3,  # PR 9871
}
_EXIT_255_FIXED_ON_MAIN = Version(1, 36, 0)


def is_affected_by_cri_o_9840(runtime: Runtime) -> bool:
    """Return whether the runtime has the defect of cri-o issue 9840.

    Such a CRI-O reports exit 255 for containers that exit within milliseconds. A CRI-O of unknown
    version counts as affected.
    """
    if runtime.name != "cri-o":
        return False
    version = runtime.version
    if version is None:
        return True
    fixed_patch = _EXIT_255_FIXED_IN.get(version.minor) if version.major == 1 else None
    if fixed_patch is not None:
        return version < Version(1, version.minor, fixed_patch)
    return version < _EXIT_255_FIXED_ON_MAIN


# KEP-4639: from Kubernetes 1.36 on, no feature gate can switch image volumes off.
IMAGE_VOLUMES_LOCKED_ON = Version(1, 36)
# KEP-4639: in Kubernetes 1.35 image volumes are on by default. An older API server drops the field
# and then rejects the pod, because the volume has no source.
IMAGE_VOLUMES_ON_BY_DEFAULT = Version(1, 35)

# KEP-5307: `restartPolicyRules` of a container, beta and on by default from 1.35. An API server
# before 1.34 rejects an init container with a `restartPolicy` other than Always.
RESTART_RULES_ON_BY_DEFAULT = Version(1, 35)

# KEP-1710: `seLinuxChangePolicy` of a pod, beta and on by default from 1.33. An older API server
# drops the field.
SELINUX_CHANGE_POLICY_ON_BY_DEFAULT = Version(1, 33)

# KEP-1710: with SELinuxMount the kubelet mounts a volume with the pod's SELinux label, and the
# runtime does not relabel it. Beta and off by default from 1.33, locked on from 1.37. It also needs
# a fixed level, no `seLinuxChangePolicy: Recursive`, and `seLinuxMount: true` in the volume's
# CSIDriver.
SELINUX_MOUNT_LOCKED_ON = Version(1, 37)

# cri-o commit 322a18e9aa. containerd makes volatile mounts only if an option of the overlayfs
# snapshotter is set (containerd PR 8676), and a Node object does not show that option.
_CRI_O_VOLATILE_MOUNTS_SINCE = Version(1, 22)

# The first runtime releases that mount image volumes: cri-o PR 8317, containerd PR 10579.
_IMAGE_VOLUMES_SINCE = {"cri-o": Version(1, 31), "containerd": Version(2, 1)}


def supports_restart_rules(kubelet: Version | None) -> bool:
    """Return whether a kubelet follows `restartPolicyRules`. An older one ignores them."""
    return kubelet is not None and kubelet >= RESTART_RULES_ON_BY_DEFAULT


def makes_volatile_mounts(runtime: Runtime) -> bool:
    """Return whether a runtime certainly mounts root filesystems with `volatile` by default."""
    return (
        runtime.name == "cri-o"
        and runtime.version is not None
        and runtime.version >= _CRI_O_VOLATILE_MOUNTS_SINCE
    )


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
