"""The flags of printed commands."""

from __future__ import annotations

import pytest

from webhook.cluster.rights import Right
from webhook.inspect.cluster_flags import ClusterFlags

FLAGS = ClusterFlags("my config", "prod; x")
KUBECTL = "kubectl --kubeconfig='my config' --context='prod; x'"
HELM = "helm --kubeconfig='my config' --kube-context='prod; x'"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("kubectl -n a get pods", f"{KUBECTL} -n a get pods"),
        ("helm upgrade a b", f"{HELM} upgrade a b"),
        ("podsettle scan", "podsettle scan --kubeconfig='my config' --context='prod; x'"),
        (
            "podsettle export p | kubectl apply -f -",
            "podsettle export --kubeconfig='my config' --context='prod; x' p | "
            f"{KUBECTL} apply -f -",
        ),
        ("podsettle node-config crio", "podsettle node-config crio"),
        ("kubectl a | kubectl b", f"{KUBECTL} a | {KUBECTL} b"),
        ("sleep 10; kubectl a", f"sleep 10; {KUBECTL} a"),
        ("(set -C; kubectl a > b)", f"(set -C; {KUBECTL} a > b)"),
        ("kubectl patch -p '[; kubectl a]'", f"{KUBECTL} patch -p '[; kubectl a]'"),
        ("kubectl a 'b'kubectl", f"{KUBECTL} a 'b'kubectl"),
        ("kubectl get kubectl", f"{KUBECTL} get kubectl"),
        (Right("list", "", "pods").command, f"{KUBECTL} auth can-i list pods -A"),
    ],
)
def test_each_program_that_uses_a_cluster_gets_the_flags(command: str, expected: str) -> None:
    assert FLAGS.add_to(command) == expected
    assert ClusterFlags().add_to(command) == command
