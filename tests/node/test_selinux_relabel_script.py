"""The script that measures SELinux relabelling, on a node without SELinux.

It starts all its pods and prints its table. That a volume is relabelled, and that the annotations
prevent it, cannot be seen here; the script has to say so.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lab.selinux_relabel import NO_VOLUME, RELABELLED, SKIPPED
from tests.support.node.node import RealNode
from tests.support.paths import ROOT
from tools.build import programs

CLASS = "selinux-fix-runtime-class"
FILES = 3000


def add_volume(node: RealNode, namespace: str, directory: Path) -> str:
    """Make a volume of a directory of the node, and return the name of its claim."""
    match = {"key": "metadata.name", "operator": "In", "values": [node.name]}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "local": {"path": str(directory)},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchFields": [match]}]}},
    }
    size = {"storage": "1Gi"}
    volume = {"metadata": {"name": namespace}, "spec": spec | {"capacity": size}}
    node.cluster.create("/api/v1/persistentvolumes", volume)
    claim = {
        "metadata": {"name": "claim"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "volumeName": namespace,
            "resources": {"requests": size},
        },
    }
    node.cluster.create(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", claim)
    return "claim"


def test_script_measures_all_kinds_of_pods_and_says_that_the_node_has_no_selinux(
    node: RealNode, namespace: str, tmp_path: Path
) -> None:
    runtime_class = {"metadata": {"name": CLASS}, "handler": "runc"}
    node.cluster.create("/apis/node.k8s.io/v1/runtimeclasses", runtime_class)
    volume = tmp_path / "volume"
    volume.mkdir()
    kubectl = programs().kubectl
    assert kubectl
    done = subprocess.run(
        [
            *(sys.executable, "-I", ROOT / "lab" / "selinux_relabel.py"),
            *("--namespace", namespace, "--claim", add_volume(node, namespace, volume)),
            *("--image", node.images.busybox, "--files", str(FILES), "--rounds", "1"),
        ],
        env={
            "PATH": f"{kubectl.parent}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "KUBECONFIG": str(node.cluster.kubeconfig),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr == ""
    assert "SELinux is not enabled on this node" in done.stdout
    assert len(list(volume.glob("*/*"))) == FILES
    rows = done.stdout.splitlines()[-3:]
    for row, kind in zip(rows, (NO_VOLUME, RELABELLED, SKIPPED), strict=True):
        assert row.strip().startswith(f"{kind}  ")
    left = node.cluster.request("GET", f"/api/v1/namespaces/{namespace}/pods").body["items"]
    assert left == []
