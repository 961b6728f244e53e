"""Configuration for CRI-O that allows the annotation TrySkipVolumeSELinuxLabel.

CRI-O removes the annotation from a pod unless its runtime handler or a workload allows it (cri-o
`pkg/config/config.go`, `pkg/config/workloads.go`). `Mode` lists the three ways to allow it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from webhook.core.constants import (
    ANNOTATION_ALLOWED_ANNOTATIONS,
    ANNOTATION_MIN_MEMORY,
    SKIP_RELABEL_ANNOTATIONS,
)
from webhook.core.defects.versions import Version
from webhook.core.types import Json
from webhook.node_config.crio_default_handler import DefaultHandler, as_quantity
from webhook.node_config.runtime_release import UnsupportedError, parse_runtime_release
from webhook.node_config.toml import toml_table

DROP_IN = "/etc/crio/crio.conf.d/99-podsettle-selinux.conf"

_SPELLINGS = SKIP_RELABEL_ANNOTATIONS
_OLD_SPELLING, _NEW_SPELLING = _SPELLINGS
# The first release that knows the new spelling (cri-o PR 9537). An older CRI-O ignores a handler
# with an unknown spelling in `allowed_annotations`, and does not start with such a workload
# (`ValidateRuntimes`, `Workloads.Validate`).
_NEW_SPELLING_SINCE = Version(1, 35)
# Before cri-o PR 5775, CRI-O never finds two SELinux levels of OpenShift equal.
_LEVEL_COMPARISON_SINCE = Version(1, 24)
# CRI-O gets three minors a year, like Kubernetes, so a larger minor is a typing mistake.
_MAX_MINOR = 60
_OPENSHIFT_MAJORS = (4, 5)
# The last minor of OpenShift 4 whose CRI-O is known: 1.35.
_LAST_OPENSHIFT_MINOR = 22
_DEFAULT_HANDLERS = ("runc", "crun")
# The first release with `container_min_memory`. The value is that of CRI-O's default handler, crun.
# Without the key, the smallest memory limit is 12 MiB (`pkg/config/config.go`).
_MIN_MEMORY_SINCE = Version(1, 30)
_CRUN_MIN_MEMORY = "500KiB"
_DEFAULT_MIN_MEMORY = "12MiB"


class Mode(StrEnum):
    """A way to allow the annotation, and the pods for which it is allowed."""

    HANDLER = "handler"
    """Pods with the annotation and the RuntimeClass (`runtimeClassName` in the policy)."""
    WORKLOAD = "workload"
    """Pods with the annotation, with any RuntimeClass."""
    DEFAULT_ANNOTATIONS = "default-annotations"
    """All pods with the RuntimeClass. They do not need the annotation."""


def parse_release(text: str) -> Version:
    """Parse a CRI-O release. Raise ValueError for any other text.

    The check is strict, because CRI-O may not start with a configuration for a later release.
    """
    version = parse_runtime_release(
        text, "cri-o", example="1.33.12", minors_that_need_patch=((1, 31),)
    )
    if version.major in _OPENSHIFT_MAJORS:
        is_known = version.major == 4 and version.minor <= _LAST_OPENSHIFT_MINOR
        crio = f"its CRI-O is 1.{version.minor + 13}" if is_known else "give the release of CRI-O"
        raise ValueError(
            f"{text} may be a release of OpenShift; {crio}: see kubectl get nodes -o wide"
        )
    if version.major == 1 and version.minor >= _MAX_MINOR:
        raise ValueError(f"there is no CRI-O {text} yet: see kubectl get nodes -o wide")
    if version.major != 1:
        raise ValueError(f"there is no CRI-O {text}, only 1.N.N: see kubectl get nodes -o wide")
    return version


def caveats(mode: Mode, role: str, node: NodeHandler) -> Iterator[str]:
    """Yield the warnings to read before an operator applies the configuration."""
    if node.oldest is not None and node.oldest >= _NEW_SPELLING_SINCE:
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
    if mode is Mode.WORKLOAD:
        yield (
            "CRI-O applies one workload to a pod, at random if the pod activates two. The remedy "
            "leaves pods that activate a workload of OpenShift or have another annotation for "
            "CRI-O. Name pods that activate a workload of your own in the annotation "
            "podsettle.dev/skip."
        )
    else:
        yield (
            "A pod of the RuntimeClass stays in ContainerCreating on a node without the handler. "
            "Keep this order: first apply the MachineConfig (-o machineconfig); wait until `oc get "
            f"mcp {role}` shows UPDATED True; apply the RuntimeClass (-o runtimeclass), and then "
            "the policy. With --node-selector KEY=VALUE, pods run only on nodes with that label."
        )
        if node.default_handler is None:
            yield (
                "The handler allows no annotation that the default handler of your nodes allows, "
                "such as io.kubernetes.cri-o.Devices, and has none of its other settings. To copy "
                "them: `crio status config > FILE` on a node, and --crio-config FILE here."
            )
    yield (
        "CRI-O compares only the label of a volume's top directory. Files deeper in the volume "
        "keep a wrong label."
    )


@dataclass(frozen=True, slots=True)
class NodeHandler:
    """What decides which settings a handler gets beside those of its mode."""

    oldest: Version | None = None
    """The oldest CRI-O on the nodes. None if it is unknown."""
    oci_runtime: str | None = None
    """`runc` or `crun`. None for the usual one."""
    default_handler: DefaultHandler | None = None
    """The default handler of a node, whose settings the handler gets."""
    is_openshift: bool = False
    """Whether the nodes are OpenShift's. Otherwise they have CRI-O's own packages."""


def selinux_drop_in(mode: Mode, name: str, node: NodeHandler) -> str:
    """Return a file for /etc/crio/crio.conf.d with a handler or workload of a name.

    CRI-O starts with it also on nodes on which the paths in it do not exist. It then ignores the
    handler (`ValidateRuntimes`). Raises UnsupportedError if the oldest CRI-O does not support the
    mode.
    """
    oldest = node.oldest
    known = node.default_handler.name if node.default_handler else None
    if name in (*_DEFAULT_HANDLERS, known) and mode is not Mode.WORKLOAD:
        raise UnsupportedError(
            f"--handler {name} may be the nodes' default handler, which other pods use: "
            "give another name"
        )
    if oldest is not None and oldest < _LEVEL_COMPARISON_SINCE:
        raise UnsupportedError(
            f"CRI-O {oldest} relabels volumes on OpenShift even with this configuration; 1.24 is "
            "the first release that compares SELinux levels correctly"
        )
    spellings = (
        [_NEW_SPELLING, _OLD_SPELLING]
        if oldest is not None and oldest >= _NEW_SPELLING_SINCE
        else [_OLD_SPELLING]
    )
    if mode is Mode.WORKLOAD:
        workload = {"activation_annotation": _OLD_SPELLING, "allowed_annotations": spellings}
        return toml_table(f"crio.runtime.workloads.{name}", workload)
    settings = _handler_settings(node)
    if node.is_openshift and node.oci_runtime is None:
        # A path may be gone after an upgrade: RHEL 10 has no runc (openshift/enhancements PR 2032).
        # CRI-O then ignores the handler. CRI-O before 1.31.3 ignores this key, and uses the path.
        settings["inherit_default_runtime"] = True
    if mode is Mode.HANDLER:
        allowed = settings.get("allowed_annotations", [])
        settings["allowed_annotations"] = list(dict.fromkeys([*spellings, *allowed]))
    elif _supports(oldest, since=Version(1, 32), backports={31: 4}):
        defaults = settings.get("default_annotations", {})
        settings["default_annotations"] = defaults | dict.fromkeys(spellings, "true")
    else:
        raise UnsupportedError(
            "the first releases of CRI-O with default_annotations are 1.31.4 and 1.32.0: give "
            "--oldest if every node has such a release, or use another --mode"
        )
    return toml_table(f"crio.runtime.runtimes.{name}", settings)


def class_annotations(node: NodeHandler) -> dict[str, str]:
    """Return what the RuntimeClass says of its handler, for `handler_loss` of the core."""
    # The class may be for OpenShift and for other nodes.
    everywhere = [_handler_settings(replace(node, is_openshift=each)) for each in (False, True)]
    # An older CRI-O ignores the key, and its default handler has the same limit.
    is_read = _supports(node.oldest, since=_MIN_MEMORY_SINCE) or node.default_handler is not None
    amounts = {each.get("container_min_memory", "") for each in everywhere} if is_read else {""}
    others = [key for key in everywhere[0].get("allowed_annotations", ()) if key not in _SPELLINGS]
    return {
        ANNOTATION_MIN_MEMORY: as_quantity(min(amounts) or _DEFAULT_MIN_MEMORY),
        ANNOTATION_ALLOWED_ANNOTATIONS: ",".join(others),
    }


def machine_config(role: str, drop_in: str, path: str = DROP_IN) -> Json:
    """Return the MachineConfig that installs a drop-in on the nodes of a role (Ignition 3.2)."""
    name = path.rpartition("/")[2].partition("-")[2].removesuffix(".conf")
    content = base64.b64encode(drop_in.encode()).decode()
    file = {
        "path": path,
        "mode": 0o644,
        "overwrite": True,
        "contents": {"source": f"data:text/plain;charset=utf-8;base64,{content}"},
    }
    return {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {
            "name": f"99-{role}-{name}",
            "labels": {"machineconfiguration.openshift.io/role": role},
        },
        "spec": {"config": {"ignition": {"version": "3.2.0"}, "storage": {"files": [file]}}},
    }


def inherits_default_runtime(node: NodeHandler) -> bool:
    """Return whether all nodes' handlers inherit the OCI runtime of the default handler.

    CRI-O looks for conmon in $PATH if a handler does not name it, and does not start without it
    (`TranslateMonitorFields`). A handler inherits no `monitor_path`. OpenShift's nodes have conmon
    in $PATH. Those with CRI-O's own packages do not (cri-o/packaging, `10-crio.conf`).
    """
    return node.is_openshift and _supports(node.oldest, since=Version(1, 32), backports={31: 3})


def _handler_settings(node: NodeHandler) -> dict[str, Any]:
    """Return the settings of a handler apart from those of its mode."""
    if node.default_handler is not None:
        return dict(node.default_handler.settings)
    if inherits_default_runtime(node):
        return {"container_min_memory": _CRUN_MIN_MEMORY}
    # OpenShift's CRI-O before 1.31.3 uses runc.
    oci_runtime = node.oci_runtime or ("runc" if node.is_openshift else "crun")
    directory = "/usr/bin" if node.is_openshift else "/usr/libexec/crio"
    settings = {
        "runtime_path": f"{directory}/{oci_runtime}",
        "runtime_root": f"/run/{oci_runtime}",
        "runtime_type": "oci",
    }
    if not node.is_openshift:
        settings["monitor_path"] = f"{directory}/conmon"
    if oci_runtime == "crun":
        settings["container_min_memory"] = _CRUN_MIN_MEMORY
    return settings


def _supports(
    oldest: Version | None, *, since: Version, backports: Mapping[int, int] = MappingProxyType({})
) -> bool:
    """Return whether the oldest release has a feature. `backports` maps minors to patch numbers."""
    if oldest is None:
        return False
    patch = backports.get(oldest.minor) if oldest.major == 1 else None
    return oldest >= since or (patch is not None and oldest.patch >= patch)
