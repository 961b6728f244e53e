"""The network of a node: one address, a bridge for pods, and no way out.

Images come from a registry inside. A name that a pod asks for is answered by dns.py.
"""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

from tests.support.kube.cluster import SERVICE_CIDR

NODE_ADDRESS = "10.200.0.1"
POD_CIDR = "10.244.0.0/24"
POD_BRIDGE = "cni0"
CNI_PLUGINS = Path("/usr/lib/cni")
"""Where Debian's containernetworking-plugins puts them."""

_NODE_BRIDGE = "node0"
_CNI_CONFIGURATION = {
    "cniVersion": "1.0.0",
    "name": "pods",
    "plugins": [
        {
            "type": "bridge",
            "bridge": POD_BRIDGE,
            "isGateway": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": POD_CIDR}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}


def set_up(host_name: str) -> None:
    """Configure the network namespace of this process, and CNI."""
    socket.sethostname(host_name)
    _ip("link", "set", "lo", "up")
    # A bridge without ports, because not every kernel has dummy interfaces.
    _ip("link", "add", _NODE_BRIDGE, "type", "bridge")
    _ip("address", "add", f"{NODE_ADDRESS}/24", "dev", _NODE_BRIDGE)
    _ip("link", "set", _NODE_BRIDGE, "up")
    # kube-proxy rewrites the destination only of packets that have a route.
    _ip("route", "add", SERVICE_CIDR, "dev", _NODE_BRIDGE)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    # It may be a link to a file that the namespaces do not have.
    resolver = Path("/etc/resolv.conf")
    resolver.unlink(missing_ok=True)
    resolver.write_text(f"nameserver {NODE_ADDRESS}\n")
    directory = Path("/etc/cni/net.d")
    directory.mkdir(parents=True)
    (directory / "10-pods.conflist").write_text(json.dumps(_CNI_CONFIGURATION, indent=2))


def tear_down() -> None:
    """Remove the bridge for pods and the rules of kube-proxy, for the next node."""
    if (Path("/sys/class/net") / POD_BRIDGE).exists():
        _ip("link", "delete", POD_BRIDGE)
    for table in ("nat", "filter", "mangle"):
        for action in ("-F", "-X"):
            subprocess.run(["iptables", "-w", "-t", table, action], check=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
