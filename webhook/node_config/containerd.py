"""Configuration for containerd that makes overlayfs mounts volatile: an umount writes nothing back.

The option is set on the overlayfs snapshotter and so applies to the whole node. A RuntimeClass can
only choose the node (containerd PR 8676; issues 6406 and 8402 ask for an option per container).
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.core.defects.versions import Version
from webhook.node_config.common import InvalidReleaseError, UnsupportedError, parse_runtime_release

DROP_IN = "/etc/containerd/conf.d/99-podsettle-volatile.toml"

# Version 2 suits a main file of any version. With a drop-in of version 3, containerd 2.1.9 does not
# migrate a main file of version 2. It ignores the table `io.containerd.grpc.v1.cri`, and with it
# SystemdCgroup, registries and CNI. containerd 2.4.2 migrates each file separately.
DEFAULT_CONFIG_VERSION = 2

_CAVEATS = (
    "It holds for every container and pause container on the node, not only for pods of the class.",
    "Linux 5.10 or later; an older kernel refuses the mount and no container starts.",
    "After a crash or power loss the writable layers of containers are lost. Kubernetes makes new "
    "ones; a container that is started again by hand cannot be mounted.",
    "Images with VOLUME fail before containerd 1.6.34 and 1.7.19 (issue 10228).",
    "containerd 1.x puts the drop-in's table in the place of the same table in the main "
    "configuration. If that one says more, such as root_path, add it to the drop-in: "
    "containerd config dump | grep -A8 'snapshotter.v1.overlayfs'",
    f'The main configuration has to import it: imports = ["{DROP_IN.rpartition("/")[0]}/*.toml"]',
    "Restart containerd; containers that run keep their mounts.",
    "Bottlerocket removes the drop-in when it renders its settings, and has no setting for it "
    "(bottlerocket issue 4885).",
)
_VERSION_3_CAVEAT = (
    "With this drop-in of version 3, containerd 2.1 ignores the CRI tables of a main configuration "
    "of version 2: SystemdCgroup, registries, CNI. Leave --config-version out unless the main "
    "configuration begins with version = 3."
)

# The first patch release with `mount_options` for each minor of 1.x (PRs 8961 and 9005). Every 2.x
# has the option. There is no 1.8.
_FIRST_PATCH_BY_MINOR = {6: 24, 7: 4}
# From this minor on, 1.N is a release of Kubernetes that may still be in use.
_FIRST_KUBERNETES_MINOR = 20
# containerd 2.x has two minors a year, so a larger minor is a mistake.
_MAX_MINOR = 30


def caveats(config_version: int) -> Iterator[str]:
    """Yield what an operator must know before applying a drop-in of this version."""
    if config_version != DEFAULT_CONFIG_VERSION:
        yield _VERSION_3_CAVEAT
    yield from _CAVEATS


def volatile_drop_in(config_version: int = DEFAULT_CONFIG_VERSION) -> str:
    """Return a file for containerd's `imports`, in version 2 or 3 of the configuration format."""
    return (
        f"version = {config_version}\n\n"
        '[plugins."io.containerd.snapshotter.v1.overlayfs"]\n'
        'mount_options = ["volatile"]\n'
    )


def parse_release(text: str) -> Version:
    """Return the containerd release in a text. Raises InvalidReleaseError for another text."""
    ambiguous_minors = tuple((1, minor) for minor in _FIRST_PATCH_BY_MINOR)
    version = parse_runtime_release(
        text, "containerd", example="2.1.5", patch_matters=ambiguous_minors
    )
    if version.major == 1 and version.minor >= _FIRST_KUBERNETES_MINOR:
        raise InvalidReleaseError(
            f"{text} looks like Kubernetes' version; the runtime's is under CONTAINER-RUNTIME: "
            "see kubectl get nodes -o wide"
        )
    last_minor = {1: max(_FIRST_PATCH_BY_MINOR), 2: _MAX_MINOR}.get(version.major, -1)
    if version.minor > last_minor:
        raise InvalidReleaseError(
            f"there is no containerd {text} that podsettle knows, only 1.N.N up to 1.7 and 2.N.N: "
            "see kubectl get nodes -o wide"
        )
    return version


def choose_config_version(oldest: Version | None, wanted: int | None = None) -> int:
    """Return the drop-in's format version: `wanted`, else 2, which every release can read.

    Raises UnsupportedError if the oldest release lacks the option or cannot read `wanted`.
    """
    version = wanted or DEFAULT_CONFIG_VERSION
    if oldest is None:
        return version
    if oldest.major == 1:
        first_patch = _FIRST_PATCH_BY_MINOR.get(oldest.minor)
        if oldest.minor < min(_FIRST_PATCH_BY_MINOR) or (
            first_patch is not None and oldest.patch < first_patch
        ):
            raise UnsupportedError(
                f"containerd {'.'.join(map(str, oldest[:3]))} has no mount_options: 1.6.24, 1.7.4 "
                "and 2.0 are the first that have"
            )
        if wanted == 3:
            raise UnsupportedError("containerd before 2.0 cannot read --config-version 3")
    return version
