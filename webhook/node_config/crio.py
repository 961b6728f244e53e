"""Configuration for CRI-O that allows the annotation TrySkipVolumeSELinuxLabel.

CRI-O removes the annotation from a pod unless its runtime handler or a workload allows it (cri-o
`pkg/config/config.go`, `pkg/config/workloads.go`). `Mode` lists the three ways to allow it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from enum import StrEnum

from webhook.core.constants import SKIP_RELABEL_ANNOTATIONS
from webhook.core.defects.versions import Version
from webhook.core.types import Json
from webhook.node_config.runtime_release import (
    InvalidReleaseError,
    UnsupportedError,
    parse_runtime_release,
)

DROP_IN = "/etc/crio/crio.conf.d/99-podsettle-selinux.conf"

_OLD_SPELLING, _NEW_SPELLING = SKIP_RELABEL_ANNOTATIONS
# The first release that knows the new spelling (cri-o PR 9537). An older CRI-O ignores a handler
# with an unknown spelling in `allowed_annotations`, and does not start with such a workload
# (`ValidateRuntimes`, `Workloads.Validate`).
_NEW_SPELLING_SINCE = Version(1, 35)
# Before cri-o PR 5775, CRI-O never finds two SELinux levels of OpenShift equal.
_LEVEL_COMPARISON_SINCE = Version(1, 24)
# CRI-O gets three minors a year, like Kubernetes, so a larger minor is a typing mistake.
_MAX_MINOR = 60
# The last minor of OpenShift 4 whose CRI-O is known: 1.35.
_LAST_OPENSHIFT_MINOR = 22
_DEFAULT_HANDLERS = ("runc", "crun")


class Mode(StrEnum):
    """A way to allow the annotation, and the pods for which it is allowed."""

    HANDLER = "handler"
    """Pods with the annotation and the RuntimeClass (`runtimeClassName` in the policy)."""
    WORKLOAD = "workload"
    """Pods with the annotation, with any RuntimeClass."""
    DEFAULT_ANNOTATIONS = "default-annotations"
    """All pods with the RuntimeClass. They do not need the annotation."""


def parse_release(text: str) -> Version:
    """Parse a CRI-O release. Raise InvalidReleaseError for any other text.

    The check is strict, because CRI-O may not start with a configuration for a later release.
    """
    version = parse_runtime_release(
        text, "cri-o", example="1.33.12", minors_that_need_patch=((1, 31),)
    )
    if version.major == 4:
        is_known = version.minor <= _LAST_OPENSHIFT_MINOR
        crio = f"its CRI-O is 1.{version.minor + 13}" if is_known else "give the release of CRI-O"
        raise InvalidReleaseError(
            f"{text} may be a release of OpenShift; {crio}: see kubectl get nodes -o wide"
        )
    if version.major == 1 and version.minor >= _MAX_MINOR:
        raise InvalidReleaseError(f"there is no CRI-O {text} yet: see kubectl get nodes -o wide")
    if version.major != 1:
        raise InvalidReleaseError(
            f"there is no CRI-O {text}, only 1.N.N: see kubectl get nodes -o wide"
        )
    return version


def caveats(mode: Mode, role: str, oldest: Version | None) -> Iterator[str]:
    """Yield the warnings to read before an operator applies the configuration."""
    if oldest is not None and oldest >= _NEW_SPELLING_SINCE:
        if mode is Mode.WORKLOAD:
            yield "CRI-O before 1.35 does not start with this drop-in."
        if mode is Mode.HANDLER:
            yield (
                "CRI-O before 1.35 starts with this drop-in, but ignores the handler. Pods of the "
                "RuntimeClass stay in ContainerCreating on such a node."
            )
    yield (
        "When the MachineConfig is applied, OpenShift drains and restarts the nodes of the pool, "
        "one after the other."
    )
    yield (
        f"Only the nodes of the machine config pool {role!r} get the MachineConfig, and the nodes "
        "of pools that inherit it. On a compact cluster, the pool is master. Every other pool "
        "needs its own MachineConfig (--role)."
    )
    if mode is not Mode.WORKLOAD:
        yield (
            "A pod of the RuntimeClass stays in ContainerCreating on a node without the handler. "
            "Keep this order: first apply the MachineConfig (-o machineconfig); wait until `oc get "
            f"mcp {role}` shows UPDATED True; apply the RuntimeClass (-o runtimeclass), and then "
            "the policy. With --node-selector KEY=VALUE, pods run only on nodes with that label."
        )
    yield (
        "CRI-O compares only the label of a volume's top directory. Files deeper in the volume "
        "keep a wrong label."
    )


def selinux_drop_in(mode: Mode, handler: str, oldest: Version | None, oci_runtime: str) -> str:
    """Return a file for /etc/crio/crio.conf.d.

    `oldest` is the oldest CRI-O on the nodes, or None if it is unknown. `oci_runtime` is runc or
    crun. The drop-in contains it only if the oldest CRI-O cannot inherit the settings of the
    default handler.

    Raises UnsupportedError if the oldest CRI-O does not support the mode.
    """
    if handler in _DEFAULT_HANDLERS and mode is not Mode.WORKLOAD:
        raise UnsupportedError(
            f"--handler {handler} may be the nodes' default handler, which other pods use: "
            "give another name"
        )
    if oldest is not None and oldest < _LEVEL_COMPARISON_SINCE:
        raise UnsupportedError(
            f"CRI-O {_format_version(oldest)} relabels volumes on OpenShift even with "
            "this configuration; 1.24 is the first release that compares SELinux levels correctly"
        )
    spellings = (
        [_NEW_SPELLING, _OLD_SPELLING]
        if oldest is not None and oldest >= _NEW_SPELLING_SINCE
        else [_OLD_SPELLING]
    )
    allowed = "[" + ", ".join(f'"{key}"' for key in spellings) + "]"
    if mode is Mode.WORKLOAD:
        return _join_lines(
            f"[crio.runtime.workloads.{handler}]",
            f'activation_annotation = "{_OLD_SPELLING}"',
            f"allowed_annotations = {allowed}",
        )
    table = f"[crio.runtime.runtimes.{handler}]"
    runtime = _runtime_settings(oldest, oci_runtime)
    if mode is Mode.HANDLER:
        return _join_lines(table, *runtime, f"allowed_annotations = {allowed}")
    if not _supports(oldest, since=Version(1, 32), backports={31: 4}):
        raise UnsupportedError(
            "the first releases of CRI-O with default_annotations are 1.31.4 and 1.32.0: give "
            "--oldest if every node has such a release, or use another --mode"
        )
    defaults = (f'"{key}" = "true"' for key in spellings)
    return _join_lines(
        table, *runtime, "", f"[crio.runtime.runtimes.{handler}.default_annotations]", *defaults
    )


def machine_config(role: str, drop_in: str) -> Json:
    """Return the MachineConfig that installs a drop-in on the nodes of a role (Ignition 3.2)."""
    content = base64.b64encode(drop_in.encode()).decode()
    file = {
        "path": DROP_IN,
        "mode": 0o644,
        "overwrite": True,
        "contents": {"source": f"data:text/plain;charset=utf-8;base64,{content}"},
    }
    return {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {
            "name": f"99-{role}-podsettle-selinux",
            "labels": {"machineconfiguration.openshift.io/role": role},
        },
        "spec": {"config": {"ignition": {"version": "3.2.0"}, "storage": {"files": [file]}}},
    }


def inherits_default_runtime(oldest: Version | None) -> bool:
    """Return whether a handler can inherit the default handler's settings on every node."""
    return _supports(oldest, since=Version(1, 32), backports={31: 3})


def _runtime_settings(oldest: Version | None, oci_runtime: str) -> tuple[str, ...]:
    """Return the lines of a handler that choose its OCI runtime."""
    if inherits_default_runtime(oldest):
        return ("inherit_default_runtime = true",)
    return (
        f'runtime_path = "/usr/bin/{oci_runtime}"',
        f'runtime_root = "/run/{oci_runtime}"',
        'runtime_type = "oci"',
    )


def _supports(oldest: Version | None, *, since: Version, backports: dict[int, int]) -> bool:
    """Return whether the oldest release has a feature. `backports` maps minors to patch numbers."""
    if oldest is None:
        return False
    patch = backports.get(oldest.minor) if oldest.major == 1 else None
    return oldest >= since or (patch is not None and oldest.patch >= patch)


def _format_version(version: Version) -> str:
    return ".".join(map(str, version[:3]))


def _join_lines(*lines: str) -> str:
    return "\n".join(lines) + "\n"
