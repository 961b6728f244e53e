"""Main files of containerd as distributions write them, in their structure and not in their words.

Sources: amazon-eks-ami `nodeadm/internal/containerd`, kind `images/base/files/etc/containerd`, k3s
`pkg/agent/templates`, AgentBaker `parts/linux/cloud-init`, Debian's package containerd.
"""

from __future__ import annotations

from collections.abc import Mapping

IMPORTS = "{imports}"
"""Stands for the directory of the drop-ins."""

_IMPORTS = f'imports = ["{IMPORTS}/*.toml"]\n'
_CRI = 'plugins."io.containerd.grpc.v1.cri"'
_RUNTIME = "plugins.'io.containerd.cri.v1.runtime'"
_IMAGES = "plugins.'io.containerd.cri.v1.images'"

_KIND = f"""\
version = 2
{_IMPORTS}
[{_CRI}]
tolerate_missing_hugepages_controller = true
restrict_oom_score_adj = false
sandbox_image = "example/pause"
[{_CRI}.containerd]
snapshotter = "overlayfs"
default_runtime_name = "runc"
discard_unpacked_layers = true
[{_CRI}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
base_runtime_spec = "/etc/containerd/cri-base.json"
[{_CRI}.containerd.runtimes.runc.options]
SystemdCgroup = true
[{_CRI}.containerd.runtimes.test-handler]
runtime_type = "io.containerd.runc.v2"
[{_CRI}.registry]
config_path = "/etc/containerd/certs.d"
"""
_SOCI = f"""\
{_KIND.replace('"overlayfs"', '"soci"')}
[proxy_plugins.soci]
type = "snapshot"
address = "/run/soci-snapshotter-grpc/soci-snapshotter-grpc.sock"
[proxy_plugins.soci.exports]
root = "/var/lib/soci-snapshotter-grpc"
"""
_K3S = f"""\
version = 3
{_IMPORTS}root = "/var/lib/rancher/k3s/agent/containerd"
state = "/run/k3s/containerd"
[plugins.'io.containerd.internal.v1.opt']
path = "/var/lib/rancher/k3s/agent/containerd"
[plugins.'io.containerd.grpc.v1.cri']
stream_server_address = "127.0.0.1"
stream_server_port = "10010"
[{_RUNTIME}]
enable_unprivileged_ports = true
[{_IMAGES}]
snapshotter = "overlayfs"
disable_snapshot_annotations = true
[{_IMAGES}.pinned_images]
sandbox = "example/pause"
[{_RUNTIME}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[{_RUNTIME}.containerd.runtimes.runc.options]
SystemdCgroup = true
[{_IMAGES}.registry]
config_path = "/var/lib/rancher/k3s/agent/etc/containerd/certs.d"
"""
# With the names of version 3 under `version = 2`.
_AKS = f"""\
version = 2
{_IMPORTS}oom_score = -999
[{_IMAGES}.pinned_images]
sandbox = "example/pause"
[{_IMAGES}.registry]
config_path = "/etc/containerd/certs.d"
[{_RUNTIME}.containerd]
default_runtime_name = "runc"
[{_RUNTIME}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[{_RUNTIME}.containerd.runtimes.runc.options]
BinaryName = "/usr/bin/runc"
SystemdCgroup = true
[{_RUNTIME}.containerd.runtimes.untrusted]
runtime_type = "io.containerd.runc.v2"
[{_RUNTIME}.containerd.runtimes.untrusted.options]
BinaryName = "/usr/bin/runc"
[metrics]
address = "0.0.0.0:10257"
"""
_DEBIAN = f"""\
version = 2
{_IMPORTS}
[{_CRI}.cni]
bin_dir = "/usr/lib/cni"
conf_dir = "/etc/cni/net.d"
[plugins."io.containerd.internal.v1.opt"]
path = "/var/lib/containerd"
"""
_UNVERSIONED = f"""\
{_IMPORTS}
[plugins.cri.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins.cri.containerd.runtimes.runc.options]
SystemdCgroup = true
[plugins.cri.registry]
config_path = "/etc/example/certs.d"
"""

MAIN_FILES: Mapping[str, str] = {
    "kind": _KIND,
    "soci": _SOCI,
    "k3s-v3": _K3S,
    "aks": _AKS,
    "debian": _DEBIAN,
    "unversioned": _UNVERSIONED,
}
"""The files by name. `k3s-v3` needs containerd 2.0 or later."""
