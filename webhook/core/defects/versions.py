"""Versions as nodes and servers state them, and which releases carry which cure."""

from __future__ import annotations

import re
from typing import NamedTuple

# Few digits: Python refuses numbers of more than 4,300.
_VERSION = re.compile(
    r"v?(\d{1,9})\.(\d{1,9})(?!\d)(?:\.(\d{1,9})(?!\d))?(-(?:alpha|beta|rc|dev)(?![a-z]))?",
    re.ASCII,
)


class Version(NamedTuple):
    """A release; `final` is False for a pre-release, which sorts before its release.

    A vendor's rebuild (`1.33.5-2.rhaos4.20…`) counts as the release that it names.
    """

    major: int
    minor: int
    patch: int = 0
    final: bool = True

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


def parse_version(text: str) -> Version | None:
    """The version at the start of a text such as `v1.36.2` or `1.33.12-5.el9`, if there is one."""
    found = _VERSION.match(text)
    if not found:
        return None
    major, minor, patch, pre = found.groups()
    return Version(int(major), int(minor), int(patch or 0), not pre)


class Runtime(NamedTuple):
    """A node's container runtime, from `status.nodeInfo.containerRuntimeVersion`."""

    name: str
    version: Version | None

    def __str__(self) -> str:
        return f"{self.name} {'.'.join(map(str, self.version[:3])) if self.version else '?'}"


def parse_runtime(text: str) -> Runtime:
    """`cri-o://1.33.12` gives `cri-o` and its version; what cannot be read has no version."""
    name, _, version = text.partition("://")
    return Runtime(name, parse_version(version))


# "Wait for exit file before defaulting to exit code 255": cri-o issue 9840, fixed on main by
# PR 9846 and released in 1.36.0. 1.32 and older have no fix.
_EXIT_255_FIXED_IN = {
    33: 13,  # PR 9932
    34: 9,  # PR 9879
    35: 3,  # PR 9871
}
_EXIT_255_FIXED_ON_MAIN = Version(1, 36, 0)


def is_affected_by_cri_o_9840(runtime: Runtime) -> bool:
    """Whether the runtime reports exit 255 for containers that finish at once.

    Only CRI-O does, until the releases above; a CRI-O of unknown version is taken to.
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


# KEP-4639: image volumes are locked on from Kubernetes 1.36 and on by default in 1.35. Before
# that an API server drops the field and then refuses the pod for a volume without a source.
IMAGE_VOLUMES_LOCKED_ON = Version(1, 36)
IMAGE_VOLUMES_ON_BY_DEFAULT = Version(1, 35)

# KEP-5307: `restartPolicyRules` of a container, beta and on by default from 1.35. An API server
# before 1.34 refuses an init container with a `restartPolicy` other than Always.
RESTART_RULES_ON_BY_DEFAULT = Version(1, 35)

# KEP-1710: `seLinuxChangePolicy` of a pod, beta and on by default from 1.33. Before that an API
# server drops the field.
SELINUX_CHANGE_POLICY_ON_BY_DEFAULT = Version(1, 33)

# KEP-1710: under SELinuxMount the kubelet mounts a volume with the pod's SELinux label and asks the
# runtime for no relabelling. Beta and off by default from 1.33, locked on from 1.37. Even there it
# takes a fixed level, no `seLinuxChangePolicy: Recursive`, and `seLinuxMount: true` in the volume's
# CSIDriver.
SELINUX_MOUNT_LOCKED_ON = Version(1, 37)

# cri-o commit 322a18e9aa. No containerd release mounts volatile by itself: it is an option of the
# node's overlayfs snapshotter (containerd PR 8676), which nodes do not tell.
_CRI_O_MOUNTS_VOLATILE_SINCE = Version(1, 22)

# The first runtime releases that mount image volumes: cri-o PR 8317, containerd PR 10579.
_IMAGE_VOLUMES_SINCE = {"cri-o": Version(1, 31), "containerd": Version(2, 1)}


def supports_restart_rules(kubelet: Version | None) -> bool:
    """Whether a kubelet follows `restartPolicyRules`; an older one restarts as the pod says."""
    return kubelet is not None and kubelet >= RESTART_RULES_ON_BY_DEFAULT


def mounts_volatile(runtime: Runtime) -> bool:
    """Whether a runtime is certain to mount root filesystems volatile, with nothing configured."""
    return (
        runtime.name == "cri-o"
        and runtime.version is not None
        and runtime.version >= _CRI_O_MOUNTS_VOLATILE_SINCE
    )


def mounts_image_volumes(kubelet: Version | None, runtime: Runtime, least: Version) -> bool:
    """Whether a node mounts `volumes[].image`, its kubelet being `least` or later.

    From IMAGE_VOLUMES_LOCKED_ON on that is certain, whatever the node's feature gates say.
    """
    since = _IMAGE_VOLUMES_SINCE.get(runtime.name)
    return (
        kubelet is not None
        and kubelet >= least
        and since is not None
        and runtime.version is not None
        and runtime.version >= since
    )
