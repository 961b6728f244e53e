"""Configuration for containerd that makes overlayfs mounts volatile.

The kernel syncs no data when it unmounts a volatile mount.

The option is set on the overlayfs snapshotter and so applies to the whole node. A RuntimeClass can
only choose the node (containerd PR 8676; issues 6406 and 8402 ask for an option per container).
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.core.defects.versions import Version
from webhook.node_config.runtime_release import (
    InvalidReleaseError,
    UnsupportedError,
    parse_runtime_release,
)

DROP_IN = "/etc/containerd/conf.d/99-podsettle-volatile.toml"

# Version 2 suits a main file of version 2 and of version 3. With a drop-in of version 3, containerd
# 2.1.9 does not migrate a main file of version 2. It ignores the table `io.containerd.grpc.v1.cri`,
# and with it SystemdCgroup, registries and CNI. containerd 2.4.2 migrates each file separately.
DEFAULT_CONFIG_VERSION = 2

_CAVEATS = (
    "The option applies to every container and pause container on the node, not only to pods of "
    "the RuntimeClass.",
    "The option needs Linux 5.10 or later. An older kernel refuses the mount, and no container "
    "starts.",
    "A crash or power loss destroys the writable layers of the node's containers. Kubernetes "
    "creates its containers again. A container that is started again by hand cannot be mounted.",
    "Before containerd 1.6.34 and 1.7.19, containers do not start if their image has a VOLUME "
    "(containerd issue 10228).",
    "containerd 1.x replaces a table of the main configuration with the drop-in's table of the "
    "same name. If the main table has more keys, such as root_path, add these keys to the drop-in: "
    "containerd config dump | grep -A8 'snapshotter.v1.overlayfs'",
    "The main configuration must begin with its version. Beside one without a version, containerd "
    "1.x does not start if it has tables such as [plugins.cri], and containerd 2.1 begins to apply "
    "its CRI tables. First write version = 2 into it, and whole names, such as "
    '[plugins."io.containerd.grpc.v1.cri"].',
    "The main configuration must import the drop-in: "
    f'imports = ["{DROP_IN.rpartition("/")[0]}/*.toml"]',
    "Restart containerd to apply the drop-in. Running containers keep their mounts.",
    "Bottlerocket removes the drop-in when it renders its settings, and it has no setting for the "
    "option (bottlerocket issue 4885).",
)
_VERSION_3_CAVEAT = (
    "With this drop-in of version 3, containerd 2.1 ignores the CRI tables of a main configuration "
    "of version 2: SystemdCgroup, registries, CNI. Use --config-version 3 only if the main "
    "configuration begins with version = 3."
)

# The first patch release with `mount_options` for each minor of 1.x (PRs 8961 and 9005). Every 2.x
# has the option. Version 1.8 does not exist.
_FIRST_PATCH_BY_MINOR = {6: 24, 7: 4}
# From this minor on, 1.N is a release of Kubernetes that may still be in use.
_FIRST_KUBERNETES_MINOR = 20
# containerd 2.x gets two minors a year, so a larger minor is a typing mistake.
_MAX_MINOR = 30


def caveats(config_version: int) -> Iterator[str]:
    """Yield the warnings to read before an operator applies a drop-in of this format version."""
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
    """Parse a containerd release. Raise InvalidReleaseError for any other text."""
    ambiguous_minors = tuple((1, minor) for minor in _FIRST_PATCH_BY_MINOR)
    version = parse_runtime_release(
        text, "containerd", example="2.1.5", minors_that_need_patch=ambiguous_minors
    )
    if version.major == 1 and version.minor >= _FIRST_KUBERNETES_MINOR:
        raise InvalidReleaseError(
            f"{text} may be a release of Kubernetes; the release of containerd is in the column "
            "CONTAINER-RUNTIME of kubectl get nodes -o wide"
        )
    last_minor = {1: max(_FIRST_PATCH_BY_MINOR), 2: _MAX_MINOR}.get(version.major, -1)
    if version.minor > last_minor:
        raise InvalidReleaseError(
            f"there is no containerd {text}: podsettle knows 1.N.N up to 1.7, and 2.N.N; see "
            "kubectl get nodes -o wide"
        )
    return version


def choose_config_version(oldest: Version | None, requested: int | None = None) -> int:
    """Return the requested format version of the drop-in. The default 2 works with every release.

    Raises UnsupportedError if the oldest release does not have the option, or cannot read the
    requested version.
    """
    version = requested or DEFAULT_CONFIG_VERSION
    if oldest is None:
        return version
    if oldest.major == 1:
        first_patch = _FIRST_PATCH_BY_MINOR.get(oldest.minor)
        if oldest.minor < min(_FIRST_PATCH_BY_MINOR) or (
            first_patch is not None and oldest.patch < first_patch
        ):
            raise UnsupportedError(
                f"containerd {'.'.join(map(str, oldest[:3]))} does not have the option "
                "mount_options: the first releases with it are 1.6.24, 1.7.4 and 2.0"
            )
        if requested == 3:
            raise UnsupportedError("containerd before 2.0 cannot read --config-version 3")
    return version
