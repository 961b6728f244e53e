"""`kubectl attach` with a terminal."""

from __future__ import annotations

import os
import pty
import subprocess

from tests.support.kube.cluster import KubeCluster
from tools.build import programs

TIMEOUT_SECONDS = 60.0


def type_into(cluster: KubeCluster, namespace: str, pod: str, text: str) -> tuple[int, str]:
    """Attach to a pod's container, type a text, and return kubectl's exit code and output."""
    kubectl = programs().kubectl
    assert kubectl, "there is no kubectl: see tools.build"
    options = [f"--kubeconfig={cluster.kubeconfig}", f"--namespace={namespace}"]
    ours, theirs = pty.openpty()
    try:
        # Typed before kubectl reads: the terminal keeps it.
        os.write(ours, text.encode())
        process = subprocess.Popen(
            [str(kubectl), *options, "attach", "--stdin", "--tty", pod],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            output, _ = process.communicate(timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
        return process.returncode, output
    finally:
        os.close(ours)
        os.close(theirs)
