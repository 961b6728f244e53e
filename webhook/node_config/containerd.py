"""Configuration for containerd that makes overlayfs mounts volatile.

The kernel syncs no data when it unmounts a volatile mount.

The option is set on the overlayfs snapshotter and so applies to the whole node. A RuntimeClass can
only choose the node (containerd PR 8676; issues 6406 and 8402 ask for an option per container).
"""

from __future__ import annotations

from collections.abc import Iterator

from webhook.core.defects.versions import Version
from webhook.node_config.runtime_release import UnsupportedError, parse_runtime_release

DROP_IN = "/etc/containerd/conf.d/99-podsettle-volatile.toml"

# Version 2 suits every main file that states its version. With a drop-in of version 3, containerd
# 2.0 to 2.2 does not migrate a main file of version 2. It ignores the table
# `io.containerd.grpc.v1.cri`, and with it SystemdCgroup, registries and CNI. From 2.3 on, it
# migrates each file by itself.
DEFAULT_CONFIG_VERSION = 2
CONFIG_VERSIONS = (2, 3, 4)
_FIRST_RELEASE_BY_CONFIG_VERSION = {3: Version(2, 0), 4: Version(2, 3)}

_CAVEATS = (
    "The option applies to every container and pause container on the node, not only to pods of "
    "the RuntimeClass.",
    "The option needs Linux 5.10 or later. An older kernel refuses the mount, and no container "
    "starts.",
    "A crash or power loss destroys the writable layers of the node's containers. Kubernetes "
    "creates its containers again. A container that is started again by hand cannot be mounted.",
    "Before containerd 1.6.34 and 1.7.19, containers do not start if their image has a VOLUME "
    "(containerd issue 10228).",
    "CRI must use the snapshotter overlayfs. Others, such as soci, overlaybd, fuse-overlayfs and "
    "native, do not read the option. This command must print overlayfs, and no other: containerd "
    "config dump | grep -E ' snapshotter = .[a-z]'",
    "The handler of the RuntimeClass takes the place of the node's default one. If that is another "
    "one, such as nvidia, name it with --handler: containerd config dump | grep "
    "default_runtime_name",
    "containerd 1.x replaces a table of the main configuration with the drop-in's table of the "
    "same name. If the main table has more keys, such as root_path, add these keys to the drop-in: "
    "containerd config dump | grep -A8 'snapshotter.v1.overlayfs'. Every containerd replaces a "
    "list mount_options of the main configuration, and does not extend it.",
    "The main configuration must begin with its version. Beside one without a version, containerd "
    "1.x does not start if it has tables such as [plugins.cri], and containerd 2.0 to 2.2 begins "
    "to apply its CRI tables. First write version = 2 into it, and whole names, such as "
    '[plugins."io.containerd.grpc.v1.cri"].',
    "The main configuration must import the drop-in: "
    f'imports = ["{DROP_IN.rpartition("/")[0]}/*.toml"]. Without a main configuration, containerd '
    "imports nothing.",
    "Where containerd runs with --config FILE, each command is containerd --config FILE config "
    "dump.",
    "Restart containerd to apply the drop-in. Running containers keep their mounts.",
    "containerd 2.3 and later recommends `containerd config migrate` in its log. Remove the "
    "drop-in before you run it: it writes the option into the main configuration, where it stays "
    "when the drop-in is removed.",
    "Some distributions write the main configuration themselves: EKS, k3s, Talos and others. See "
    "docs/node-config.md. Bottlerocket removes the drop-in when it renders its settings, and has "
    "no setting for the option (bottlerocket issue 4885).",
)
_CAVEAT_BY_CONFIG_VERSION = {
    3: "With this drop-in of version 3, containerd 2.0 to 2.2 ignores the CRI tables of a main "
    "configuration of version 2: SystemdCgroup, registries, CNI. Use --config-version 3 only if "
    "the main configuration begins with version = 3.",
    4: "containerd before 2.3 does not start with this drop-in of version 4.",
}

# The first patch release with `mount_options` for each minor of 1.x (PRs 8961 and 9005). Every 2.x
# has the option. Version 1.8 does not exist.
_FIRST_PATCH_BY_MINOR = {6: 24, 7: 4}
# From this minor on, 1.N is a release of Kubernetes that may still be in use.
_FIRST_KUBERNETES_MINOR = 20
# containerd 2.x gets two minors a year, so a larger minor is a typing mistake.
_MAX_MINOR = 30


def caveats(config_version: int) -> Iterator[str]:
    """Yield the warnings to read before an operator applies a drop-in of this format version."""
    if config_version in _CAVEAT_BY_CONFIG_VERSION:
        yield _CAVEAT_BY_CONFIG_VERSION[config_version]
    yield from _CAVEATS


def volatile_drop_in(config_version: int = DEFAULT_CONFIG_VERSION) -> str:
    """Return a file for containerd's `imports`, in one of CONFIG_VERSIONS."""
    return (
        f"version = {config_version}\n\n"
        '[plugins."io.containerd.snapshotter.v1.overlayfs"]\n'
        'mount_options = ["volatile"]\n'
    )


def parse_release(text: str) -> Version:
    """Parse a containerd release. Raise ValueError for any other text."""
    ambiguous_minors = tuple((1, minor) for minor in _FIRST_PATCH_BY_MINOR)
    version = parse_runtime_release(
        text, "containerd", example="2.1.5", minors_that_need_patch=ambiguous_minors
    )
    if version.major == 1 and version.minor >= _FIRST_KUBERNETES_MINOR:
        raise ValueError(
            f"{text} may be a release of Kubernetes; the release of containerd is in the column "
            "CONTAINER-RUNTIME of kubectl get nodes -o wide"
        )
    last_minor = {1: max(_FIRST_PATCH_BY_MINOR), 2: _MAX_MINOR}.get(version.major, -1)
    if version.minor > last_minor:
        raise ValueError(
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
                f"containerd {oldest} does not have the option mount_options: the first releases "
                "with it are 1.6.24, 1.7.4 and 2.0"
            )
    first = _FIRST_RELEASE_BY_CONFIG_VERSION.get(version)
    if first is not None and oldest < first:
        raise UnsupportedError(
            f"containerd before {first.major}.{first.minor} cannot read --config-version {version}"
        )
    return version
